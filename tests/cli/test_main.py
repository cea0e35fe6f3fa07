"""The outermost function of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from extproc.app.version import own_version
from extproc.cli import main
from extproc.cli.root import root


class Interrupted(ModuleType):
    """A module during whose import somebody presses Ctrl-C."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_an_interrupt_while_modules_are_loaded_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loading takes a second, longer on a busy machine."""
    monkeypatch.setitem(sys.modules, "extproc.cli.root", Interrupted("root"))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


def test_the_version_is_shown_without_loading_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "extproc.cli.root", None)  # cannot be imported
    monkeypatch.setattr(sys, "argv", ["coxswain", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"coxswain {own_version()}\n"


def test_a_reader_of_the_version_may_be_gone() -> None:
    """As with `| head -0`: no traceback, and none at the end of the process either."""
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-m", "extproc.cli", "--version"]
    with os.fdopen(writer, "w") as gone:
        ended = subprocess.run(program, stdout=gone, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize("arguments", [["config", "schema"], ["--version"]], ids=" ".join)
def test_a_full_disk_is_said_in_one_line(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed may go to a file."""
    monkeypatch.setattr(sys, "argv", ["coxswain", *arguments])
    with Path("/dev/full").open("w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main()
        monkeypatch.undo()
        with suppress(OSError):
            full.close()
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "coxswain: the output cannot be written: no space left"
    ]


def test_serve_is_the_same_command_without_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It starts in less time when the others are not loaded."""
    with pytest.raises(SystemExit):
        root(["serve", "--help"], prog_name="coxswain")
    expected = capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "extproc.cli.root", None)  # cannot be imported
    monkeypatch.setattr(sys, "argv", ["coxswain", "serve", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == expected != ""
