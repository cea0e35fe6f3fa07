"""Claims about `coxswain config envoy`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.typed_command import Command

FILES = Path(__file__).resolve().parents[3] / "envoy"


@pytest.fixture(autouse=True)
def _settings_are_those_of_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith("COXSWAIN_"):
            monkeypatch.delenv(name)


def test_a_process_needs_no_environment(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "extproc.cli", "config", "envoy"],
        capture_output=True,
        text=True,
        check=False,
        cwd=FILES.parent,
        env={"PATH": "", "HOME": str(tmp_path)},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == (FILES / "envoy.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--snippet"], "ext_proc_filter.yaml"),
        (["--mode", "gateway"], "gateway.yaml"),
        (["--set", "envoy.discovery=false"], "original_dst.yaml"),
        (["--mode", "original-dst", "--set", "envoy.discovery=false"], "original_dst.yaml"),
    ],
)
def test_the_command_prints_the_files(coxswain: Command, arguments: list[str], name: str) -> None:
    ended = coxswain("config", "envoy", *arguments)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (FILES / name).read_text(encoding="utf-8")


def test_the_settings_file_decides_what_is_printed(coxswain: Command, tmp_path: Path) -> None:
    settings = tmp_path / "coxswain.yaml"
    settings.write_text("envoy: {listen: '127.0.0.1:8888', blocked_paths: [/private*]}\n")
    ended = coxswain("config", "envoy", "--config", str(settings))
    assert "port_value: 8888" in ended.out
    assert "/private" in ended.out
    assert "/private" not in coxswain("config", "envoy").out


def test_the_servers_cluster_may_be_left_to_the_picker(coxswain: Command) -> None:
    ended = coxswain("config", "envoy", "--snippet", "--served-cluster")
    assert ended.code == 0 and "\ndynamic_resources:\n" in ended.out
    for wrong in (("--served-cluster",), ("--snippet", "--served-cluster", "--mode=original-dst")):
        ended = coxswain("config", "envoy", *wrong)
        assert ended.code == 2 and "Traceback" not in ended.err


def test_choices_that_contradict_each_other_are_reported_in_one_line(coxswain: Command) -> None:
    choices = ("--set", "envoy.discovery=false", "--set", "envoy.inject_keys=true")
    ended = coxswain("config", "envoy", *choices)
    assert ended.code == 2
    assert "injected keys need discovery" in " ".join(ended.err.split())
    assert "Traceback" not in ended.err


def test_answers_that_name_several_servers_are_none_for_original_dst(coxswain: Command) -> None:
    """What the picker answers is its own setting, which a choice for one printing leaves alone."""
    ended = coxswain("config", "envoy", "--mode", "original-dst")
    assert (ended.code, ended.out) == (2, "")
    assert "envoy.discovery: false, for the picker too" in " ".join(ended.err.split())
