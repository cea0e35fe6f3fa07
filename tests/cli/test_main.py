"""The outermost function of the command line."""

from __future__ import annotations

import sys
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
