"""Types `coxswain` as a shell would, through `main`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import Result

from extproc.cli import main

Run = Callable[..., Coroutine[Any, Any, Result]]
"""The fixture `run`: types a command while a picker lives in this event loop."""


def parsed(result: Result) -> Any:
    """The JSON that a command printed, which must have ended well."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How one run of the command ended."""

    code: int
    out: str
    err: str


class Command:
    """Runs `coxswain` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["coxswain", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = self._capsys.readouterr()
        code = exit_.value.code
        assert code is None or isinstance(code, int)
        return Ended(code=code or 0, out=captured.out, err=captured.err)
