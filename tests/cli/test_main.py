"""The outermost function of the command line."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from extproc.cli import main


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


def test_a_full_disk_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed may go to a file."""
    monkeypatch.setattr(sys, "argv", ["coxswain", "config", "schema"])
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
