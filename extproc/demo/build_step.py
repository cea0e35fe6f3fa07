"""One step of a build: a command whose output goes to a log, with its progress on one line."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

POLL_S = 0.25
PLAIN_LINE_EVERY_S = 10.0
NICENESS = 5
TAIL_LINES = 20

_NINJA_COUNT = re.compile(rb"\[(\d+)/(\d+)\]")


class StepError(Exception):
    """A step failed: `str(error)` says which and what to do, `tail` is the end of its log."""

    def __init__(self, message: str, tail: str) -> None:
        super().__init__(message)
        self.tail = tail


def run_step(
    title: str,
    command: Sequence[str],
    *,
    log: Path,
    out: IO[str],
    remedy: str,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run `command` to its end at a low priority, appending what it prints to `log`; blocks.

    On a terminal `out` gets one line that is kept up to date, otherwise a line every ten
    seconds. Raises `StepError` when the command cannot start or ends with anything but 0.
    The command dies with this process's foreground group (Ctrl-C) or when the call unwinds.
    """
    began = time.monotonic()
    line = _ProgressLine(title, out, began)
    with log.open("ab") as sink:
        sink.write(f"\n$ {' '.join(command)}\n".encode())
        sink.flush()
        start = sink.tell()
        try:
            process = subprocess.Popen(
                _nice(command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        except OSError as error:
            raise StepError(f"{title}: {error}; {remedy}", "") from error
    try:
        while (status := process.poll()) is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
            line.show(_count(log, start))
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        line.end()
    if status != 0:
        raise StepError(f"{title} failed (exit status {status}); {remedy}", _tail(log, start))
    line.done()


class _ProgressLine:
    """Shows the progress of a step, without flooding a log file."""

    def __init__(self, title: str, out: IO[str], began: float) -> None:
        self._title = title
        self._out = out
        self._began = began
        self._is_terminal = out.isatty()
        self._next_plain = began + PLAIN_LINE_EVERY_S
        self._width = 0

    def show(self, count: tuple[int, int] | None) -> None:
        now = time.monotonic()
        text = f"{self._title}: {now - self._began:.0f} s"
        if count is not None:
            text += f", {100 * count[0] // max(1, count[1])} % [{count[0]}/{count[1]}]"
        if self._is_terminal:
            self._out.write("\r" + text.ljust(self._width))
            self._out.flush()
            self._width = len(text)
        elif now >= self._next_plain:
            self._next_plain = now + PLAIN_LINE_EVERY_S
            print(text, file=self._out, flush=True)

    def end(self) -> None:
        if self._width:
            self._out.write("\r" + " " * self._width + "\r")
            self._out.flush()

    def done(self) -> None:
        took = time.monotonic() - self._began
        print(f"{self._title}: done in {took:.0f} s", file=self._out, flush=True)


def _nice(command: Sequence[str]) -> list[str]:
    """Wrap by nice(1), which every POSIX system has; a `preexec_fn` would not be thread-safe."""
    return ["nice", "-n", str(NICENESS), *command] if os.name == "posix" else list(command)


def _count(log: Path, start: int) -> tuple[int, int] | None:
    """The last `[n/m]` that ninja wrote after `start`, None when there is none."""
    with log.open("rb") as text:
        text.seek(max(start, log.stat().st_size - 65_536))
        counts = _NINJA_COUNT.findall(text.read())
    return (int(counts[-1][0]), int(counts[-1][1])) if counts else None


def _tail(log: Path, start: int) -> str:
    with log.open("rb") as text:
        text.seek(start)
        return "\n".join(text.read().decode(errors="replace").splitlines()[-TAIL_LINES:])
