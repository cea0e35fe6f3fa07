"""Claims about `coxswain config envoy`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FILES = Path(__file__).resolve().parents[3] / "envoy"


def _run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "extproc.cli", "config", "envoy", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=FILES.parent,
        env={"PATH": "", "HOME": str(folder)},
    )


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([], "envoy.yaml"),
        (["--snippet"], "ext_proc_filter.yaml"),
        (["--mode", "gateway"], "gateway.yaml"),
        (["--set", "envoy.discovery=false"], "original_dst.yaml"),
        (["--mode", "original-dst", "--set", "envoy.discovery=false"], "original_dst.yaml"),
    ],
)
def test_the_command_prints_the_files(arguments: list[str], name: str, tmp_path: Path) -> None:
    ended = _run(*arguments, folder=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == (FILES / name).read_text(encoding="utf-8")


def test_the_settings_file_decides_what_is_printed(tmp_path: Path) -> None:
    settings = tmp_path / "coxswain.yaml"
    settings.write_text("envoy: {listen: '127.0.0.1:8888', blocked_paths: [/private*]}\n")
    ended = _run("--config", str(settings), folder=tmp_path)
    assert "port_value: 8888" in ended.stdout
    assert "/private" in ended.stdout and "/slots" not in ended.stdout


def test_the_servers_cluster_may_be_left_to_the_picker(tmp_path: Path) -> None:
    ended = _run("--snippet", "--served-cluster", folder=tmp_path)
    assert ended.returncode == 0 and "\ndynamic_resources:\n" in ended.stdout
    for wrong in (("--served-cluster",), ("--snippet", "--served-cluster", "--mode=original-dst")):
        ended = _run(*wrong, folder=tmp_path)
        assert ended.returncode == 2 and "Traceback" not in ended.stderr


def test_choices_that_contradict_each_other_are_reported_in_one_line(tmp_path: Path) -> None:
    choices = ("--set", "envoy.discovery=false", "--set", "envoy.inject_keys=true")
    ended = _run(*choices, folder=tmp_path)
    assert ended.returncode == 2
    assert "injected keys need discovery" in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_answers_that_name_several_servers_are_none_for_original_dst(tmp_path: Path) -> None:
    """What the picker answers is its own setting, which a choice for one printing leaves alone."""
    ended = _run("--mode", "original-dst", folder=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "envoy.discovery: false, for the picker too" in " ".join(ended.stderr.split())
