"""Claims about extproc/cli/screens/keys.py, on a terminal of the test's own."""

from __future__ import annotations

import asyncio
import os
import pty
import termios
from collections.abc import Iterator

import pytest

from extproc.cli.screens.keys import keys
from tests.fakes.picker import until


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where to type; the other end is our stdin."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield ours
    os.close(ours)


async def test_each_key_is_reported_at_once(keyboard: int) -> None:
    """Without a line's end, in order, not shown; what is no text hurts nobody."""
    pressed: list[str] = []
    with keys(pressed.append):
        os.write(keyboard, b"jq\xff")
        await until(lambda: len(pressed) == 3)
    assert pressed == ["j", "q", "\ufffd"]
    os.write(keyboard, b"x")  # shown again, and ours no more
    assert os.read(keyboard, 64) == b"x"
    assert len(pressed) == 3


async def test_the_terminal_is_left_as_it_was(keyboard: int) -> None:
    """Also when what happens within raises."""
    before = termios.tcgetattr(keyboard)

    def work() -> None:
        with keys(lambda key: None):
            assert termios.tcgetattr(keyboard) != before
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert termios.tcgetattr(keyboard) == before


async def test_a_terminal_that_is_gone_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the empty string; its modes cannot be restored, and that is no further trouble."""
    ours, theirs = pty.openpty()
    pressed: list[str] = []
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with keys(pressed.append):
            os.close(ours)
            await until(lambda: bool(pressed))
            await asyncio.sleep(0)
    assert pressed == [""]


async def test_without_a_terminal_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe's bytes are no keys, and stay in it."""
    reader, writer = os.pipe()
    os.write(writer, b"q")
    with os.fdopen(reader) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with keys(pytest.fail):
            await asyncio.sleep(0)
        assert os.read(reader, 1) == b"q"
    os.close(writer)
