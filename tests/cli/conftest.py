"""Types a command for every test of this folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from extproc.cli.root import root
from tests.cli.typed_command import Command
from tests.fakes.picker import FakePicker


@pytest.fixture(autouse=True)
def _logs_are_pytests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that serves takes the process's logs for its own, for as long as it lives."""
    for flag in ("logThreads", "logProcesses", "logMultiprocessing", "_srcfile"):
        monkeypatch.setattr(logging, flag, getattr(logging, flag))
    root, ours = logging.getLogger(), logging.getLogger("coxswain")
    handlers, levels = root.handlers.copy(), (root.level, ours.level)
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Coroutine[Any, Any, Result]]:
    """Runs it in a thread: the picker it talks to lives in the test's event loop."""
    for name in ("COXSWAIN_PICKER", "COXSWAIN_TOKEN", "COXSWAIN_TOKEN_FILE", "COXSWAIN_CA"):
        monkeypatch.delenv(name, raising=False)

    async def invoke(*arguments: str, picker: FakePicker | None = None, stdin: str = "") -> Result:
        if picker is not None:
            arguments = (*arguments, "--picker", f"127.0.0.1:{picker.port}")
        return await asyncio.to_thread(lambda: CliRunner().invoke(root, arguments, input=stdin))

    return invoke


@pytest.fixture
def coxswain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)
