"""Claims about extproc/cli/commands/top.py, against a real picker and on a real terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fcntl import ioctl
from typing import Any

from typer.testing import Result

from extproc.core.observation import Issue
from tests.fakes.picker import FakePicker, running_picker, until

A, B, DOWN = "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"
Run = Callable[..., Coroutine[Any, Any, Result]]


async def busy(picker: FakePicker) -> list[Any]:
    """Two endpoints, the second one full; a request runs, one waits."""
    picker.add_ready(A, slots=4, name="gpu-1")
    picker.add_ready(B, slots=1, name="gpu-2")
    picker.observe(A, slots=4, busy_slots=3)
    picker.outcomes.update({"served": 1200, "queue-full": 3})
    calls = [await picker.ask("r1"), await picker.ask("r2"), await picker.ask("r3")]
    assert len(picker.dispatcher.queue) == 1
    return calls


async def test_once_where_there_is_no_terminal(run: Run) -> None:
    """The sums, the endpoints by their load, the line, the requests."""
    async with running_picker() as picker:
        calls = await busy(picker)
        shown = (await run("top", picker=picker)).stdout
        for call in calls:
            call.cancel()
    assert "1.2.3" in shown and "ready" in shown.splitlines()[0]
    assert "2 leased, 3 foreign, 0 idle of 5" in shown and "2 of 2 ready" in shown
    assert "2 requests, 1 Envoy connected" in shown
    assert "1 (at most 10): 1 standard; longest" in shown
    assert "1,200 served, 3 queue-full" in shown
    assert "queued 1" in shown and "\x1b" not in shown


async def test_the_busiest_endpoint_comes_first(run: Run) -> None:
    """By the share of its slots; what should be fixed stands above all of them."""
    async with running_picker() as picker:
        picker.add_ready(A, slots=8, name="gpu-1")
        picker.add_ready(B, slots=2, name="gpu-2")
        picker.observe(A, slots=8, busy_slots=3)
        issue = Issue(code="slow-slots", message="it is slow", remedy="wait")
        picker.observe(B, slots=2, busy_slots=1, issues=(issue,))
        shown = (await run("top", picker=picker)).stdout
        told = json.loads((await run("top", "-o", "json", picker=picker)).stdout)
    assert shown.index("! gpu-2") < shown.index("ENDPOINT") < shown.index("gpu-1 (")
    assert [each["name"] for each in told["endpoints"]] == ["gpu-2", "gpu-1"]
    assert told["status"]["slots"]["foreign"] == 4 and told["running"] == told["queued"] == []


async def test_several_scrapes(run: Run) -> None:
    """With `-n` as many pictures, for scripts a line of JSON each."""
    async with running_picker() as picker:
        arguments = ("top", "-n", "3", "--interval", "0.2")
        lines = (await run(*arguments, "-o", "json", picker=picker)).stdout.splitlines()
        shown = (await run(*arguments, picker=picker)).stdout
    assert [json.loads(line)["status"]["is_ready"] for line in lines] == [True] * 3
    assert shown.count("no endpoints yet") == 3


async def test_nobody_there(run: Run) -> None:
    """As with every other command: one line, and 3."""
    result = await run("top", "--picker", "127.0.0.1:1")
    assert result.exit_code == 3 and result.stderr.count("\n") == 1


@dataclass
class Terminal:
    """`coxswain top` on a terminal of 80 columns; `shown` is all that it wrote."""

    process: asyncio.subprocess.Process
    keyboard: int
    before: list[Any]
    shown: bytearray = field(default_factory=bytearray)

    def type(self, text: str) -> None:
        os.write(self.keyboard, text.encode())

    async def until_shown(self, text: str) -> None:
        async with asyncio.timeout(60):  # a process starts meanwhile
            while text.encode() not in self.shown:  # noqa: ASYNC110  # a terminal knows no events
                await asyncio.sleep(0.005)

    async def left_with(self) -> int:
        """Its exit code; what it wrote last must have left the screen, and the keys as before."""
        code = await self.process.wait()
        await self.until_shown("\x1b[?1049l")
        assert termios.tcgetattr(self.keyboard) == self.before
        return code


@asynccontextmanager
async def terminal(picker: FakePicker) -> AsyncIterator[Terminal]:
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(ours)
    command = ("-m", "extproc.cli", "top", "--interval", "0.2")
    environment = {**os.environ, "TERM": "xterm", "COXSWAIN_PICKER": f"127.0.0.1:{picker.port}"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    found = Terminal(process, ours, before)
    loop = asyncio.get_running_loop()
    loop.add_reader(ours, lambda: found.shown.extend(os.read(ours, 65536)))
    try:
        yield found
    finally:
        loop.remove_reader(ours)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)
        os.close(theirs)


async def test_q_leaves_and_the_terminal_is_as_before() -> None:
    """It takes the whole screen, follows what changes, and ends with 0; other keys do nothing."""
    async with running_picker() as picker, terminal(picker) as screen:
        await screen.until_shown("no endpoints yet")
        assert b"\x1b[?1049h" in screen.shown
        screen.type("x")
        picker.add_ready(A, slots=2, name="gpu-7")
        await screen.until_shown("gpu-7")
        screen.type("q")
        assert await screen.left_with() == 0


async def test_a_stopped_one_that_goes_on_still_hears_keys() -> None:
    """Ctrl-Z and `fg`: the shell has set the terminal to whole lines meanwhile."""
    async with running_picker() as picker, terminal(picker) as screen:
        await screen.until_shown("no endpoints yet")
        termios.tcsetattr(screen.keyboard, termios.TCSANOW, screen.before)
        screen.process.send_signal(signal.SIGCONT)
        await until(lambda: termios.tcgetattr(screen.keyboard) != screen.before)
        screen.type("q")
        assert await screen.left_with() == 0


async def test_sigterm_leaves_the_same_way() -> None:
    """A supervisor's or a shell's end leaves no broken terminal behind."""
    async with running_picker() as picker, terminal(picker) as screen:
        await screen.until_shown("no endpoints yet")
        screen.process.send_signal(signal.SIGTERM)
        assert await screen.left_with() == 0


async def test_ctrl_c_leaves_with_130() -> None:
    """Like every command that is interrupted, and without a traceback."""
    async with running_picker() as picker, terminal(picker) as screen:
        await screen.until_shown("no endpoints yet")
        screen.process.send_signal(signal.SIGINT)
        assert await screen.left_with() == 130
        assert b"Traceback" not in screen.shown
