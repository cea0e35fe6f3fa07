"""Claims about extproc/cli/interrupt.py, with real signals in real processes."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest

from extproc.cli.interrupt import run_interruptible
from tests.fakes.picker import running_picker, until

LOADING = """
from extproc.cli.interrupt import end_at_once
end_at_once()
print("loading", flush=True)
import signal, time
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    print("ignored", flush=True)
else:
    time.sleep(60)
"""


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_one_cancels_and_the_others_disturb_nothing() -> None:
    """What a command does at its end is done to the end, however often somebody presses."""
    repaired = []

    async def command() -> None:
        try:
            press()
            await asyncio.sleep(60)
        finally:
            for _ in range(5):
                press()
            repaired.append("the terminal")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_interruptible(command)
    assert repaired == ["the terminal"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_end_of_its_own_is_no_interrupt() -> None:
    """A command that was cancelled by something else says so."""

    async def command() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_interruptible(command)


def test_another_thread_hears_no_signals() -> None:
    """There a command runs all the same; a test that types commands does that."""
    said: list[str] = []

    async def command() -> None:
        said.append("done")

    async def from_a_thread() -> None:
        await asyncio.to_thread(run_interruptible, command)

    asyncio.run(from_a_thread())
    assert said == ["done"]


def test_while_modules_are_loaded_it_ends_without_a_word() -> None:
    """An import that is interrupted in its middle fails in ways of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", LOADING], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as loading:
        assert loading.stdout is not None and loading.stderr is not None
        assert loading.stdout.readline() == b"loading\n"
        loading.send_signal(signal.SIGINT)
        assert loading.wait() == -signal.SIGINT
        assert loading.stderr.read() == b""


def test_who_was_set_to_ignore_it_goes_on() -> None:
    """As with nohup, or behind `&` in a script."""
    shell = f"trap '' INT; exec {sys.executable} -c '{LOADING}'"
    told = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["loading", "ignored"]


@pytest.mark.parametrize("command", [("endpoints", "--watch"), ("queue", "--watch")])
async def test_a_hurried_hand_gets_its_terminal_back(command: tuple[str, ...]) -> None:
    """Six times Ctrl-C: the cursor is there again, and no traceback stands above it."""
    async with running_picker() as picker:
        picker.add_ready("10.0.0.1:8080", name="gpu-7")
        keyboard, screen = pty.openpty()
        _keep_output(screen)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "extproc.cli", *command),
            *("--picker", f"127.0.0.1:{picker.port}"),
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env={**os.environ, "TERM": "xterm"},
            preexec_fn=_controlling(screen),
        )
        os.close(screen)
        shown = bytearray()
        loop = asyncio.get_running_loop()
        loop.add_reader(keyboard, lambda: shown.extend(_read(keyboard)))
        try:
            await until(lambda: b"\x1b[?25l" in shown)
            for _ in range(6):
                os.write(keyboard, b"\x03")
                await asyncio.sleep(0.01)
            await process.wait()
            await until(lambda: shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l"))
        finally:
            loop.remove_reader(keyboard)
            os.close(keyboard)
        assert process.returncode in (130, -signal.SIGINT)
        assert b"Traceback" not in shown and b"Exception" not in shown


def _keep_output(screen: int) -> None:
    """At Ctrl-C the kernel drops what was written and not read yet, unless it is asked not to."""
    attributes = termios.tcgetattr(screen)
    attributes[3] |= termios.NOFLSH
    termios.tcsetattr(screen, termios.TCSANOW, attributes)


def _controlling(screen: int) -> Callable[[], None]:
    """Makes the terminal the child's own, so that keys become signals."""

    def run() -> None:
        os.login_tty(screen)

    return run


def _read(keyboard: int) -> bytes:
    try:
        return os.read(keyboard, 65536)
    except OSError:  # nobody has the other end open any more
        asyncio.get_running_loop().remove_reader(keyboard)
        return b""
