"""Runs operators' programs to their ends: without a shell, and for a limited time.

Each run is a process group of its own: at its time limit and when the picker stops, the group gets
SIGTERM, then SIGKILL. What the program leaves running in other groups is left alone. If the picker
is killed, the kernel kills the program.
"""

import asyncio
import logging
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Final

from extproc.keeper import parent_death_signal
from extproc.keeper.output_pipe import OutputPipe

CHECK_S: Final = 1.0
START_S: Final = 5.0
"""After a start, agents and servers are given this time to appear before anything is run."""
TERM_GRACE_S: Final = 5.0
MAX_LINES: Final = 20
MAX_LINE_CHARS: Final = 300


class ProgramRuns(ABC):
    """Decides again and again what is to be run, from `start` to `aclose`. Belongs to one event
    loop."""

    def __init__(
        self, what: str, log: logging.Logger, check_s: float = CHECK_S, start_s: float = START_S
    ) -> None:
        """`what` names the work in `log`. A check comes every `check_s` seconds, the first one
        `start_s` seconds after the start."""
        self._what = what
        self._log = log
        self._check_s = check_s
        self._start_s = start_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    @abstractmethod
    def check(self) -> None:
        """Begin what is to be run now."""

    def start(self) -> None:
        """Begin to check."""
        self._loop = asyncio.create_task(self._follow(), name=self._what)

    async def aclose(self) -> None:
        """End what runs, and return when it has ended."""
        tasks = {*self._tasks, *([] if self._loop is None else [self._loop])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _begin(self, run: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(run, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self) -> None:
        await asyncio.sleep(self._start_s)
        while True:
            try:
                self.check()
            except Exception:  # noqa: BLE001 - logged by the caller's logger
                self._log.exception("%s failed", self._what)
            await asyncio.sleep(self._check_s)


async def run_program(
    command: Sequence[str], timeout_s: float, name: str, log: logging.Logger
) -> str:
    """Run it to its end; returns what went wrong, empty if nothing did. The last lines that it
    prints are logged under `name`. Raises `CancelledError` after the program has ended."""
    lines = _LastLines()
    output = OutputPipe(lines.feed, lines.end)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", parent_death_signal.__file__, str(os.getpid())),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output.sink,
            stderr=output.sink,
            start_new_session=True,
        )
    except OSError as error:
        output.close()
        return f"it cannot be run: {error.strerror}"
    except BaseException:
        output.close()
        raise
    finally:
        output.close_sink()
    try:
        async with asyncio.timeout(timeout_s):
            status = await process.wait()
    except TimeoutError:
        return f"it did not end within {timeout_s:g} s"
    finally:
        if process.returncode is None:
            await _end_group(process)
        output.close()
        for line in lines.read():
            log.info("%s: %s", name, line)
    if status < 0:
        return f"it was killed by {signal.Signals(-status).name}"
    return f"exit status {status}" if status else ""


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """SIGTERM for the group, then SIGKILL; also while this task is being cancelled."""
    _signal_group(process.pid, signal.SIGTERM)
    waiting = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({waiting}, timeout=TERM_GRACE_S)
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        await waiting


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _LastLines:
    """The end of what a program prints, with the number of lines before it."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """The program has printed this; lines may be cut anywhere."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        for line in complete:
            self._add(line)
        self._rest = self._rest[: 4 * MAX_LINE_CHARS]

    def end(self) -> None:
        """What was printed last is a line, too."""
        self._add(self._rest)

    def read(self) -> list[str]:
        """The last lines, for people."""
        left_out = self._count - len(self._lines)
        head = [f"[{left_out} lines were left out]"] if left_out else []
        return [*head, *self._lines]

    def _add(self, raw: bytes) -> None:
        text = "".join(c if c.isprintable() else " " for c in raw.decode(errors="replace")).strip()
        if text:
            self._count += 1
            self._lines.append(text[:MAX_LINE_CHARS])
