"""Claims about rigs/image that need no Docker engine; `make image-test` is the test itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rigs.image import __main__ as run
from rigs.image.stack import drain_commands
from tests.deploy.stack_files import ROOT, compose


def test_without_an_engine_it_says_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plain message, and a status of its own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(run, "FOLDER", tmp_path / "image")
    assert run.main([]) == 2
    assert capsys.readouterr().err == (
        "image-test: left out: no Docker engine responds; install Docker with its compose plugin\n"
    )


def test_the_documented_commands_remove_what_the_test_added() -> None:
    """The page drains the containers with the highest numbers of six, and keeps four."""
    commands = drain_commands()
    assert re.findall(r"coxswain-llama-(\d)", commands) == ["6", "5"]
    assert "--scale llama=4" in commands


def test_the_base_is_a_debian_whose_python_has_that_version() -> None:
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", run.base_tag())


def test_stand_ins_are_for_services_of_the_stack() -> None:
    stand_ins = yaml.safe_load((ROOT / "rigs/image/compose.yaml").read_text(encoding="utf-8"))
    assert stand_ins["services"].keys() <= compose()["services"].keys()
