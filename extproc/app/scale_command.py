"""Runs the program in `scale.command` to start and stop servers.

    PROGRAM [ARGUMENT ...] up|down MODEL SERVERS

No shell. Each run is a process group of its own: at its time limit and when the picker stops, the
group gets SIGTERM, then SIGKILL. What the program leaves running in other groups is left alone. If
the picker is killed, the kernel kills the program.
"""

import asyncio
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from extproc.core.scaling.runs import ModelRuns, Run
from extproc.core.views.scale_advisor import ModelScale
from extproc.keeper import parent_death_signal
from extproc.keeper.output_pipe import OutputPipe

CHECK_S: Final = 1.0
START_S: Final = 5.0
"""After a start, agents and servers are given this time to appear before anything is run."""
TERM_GRACE_S: Final = 5.0
MAX_LINES: Final = 20
MAX_LINE_CHARS: Final = 300

log = logging.getLogger("coxswain.scale")


class ScaleCommand:
    """Belongs to one event loop. Each model has at most one run at a time."""

    def __init__(
        self,
        command: Sequence[str],
        models: Collection[str],
        read: Callable[[], Mapping[str, ModelScale]],
        clock: Callable[[], float],
        timeout_s: float,
        *,
        check_s: float = CHECK_S,
        start_s: float = START_S,
    ) -> None:
        """`read` returns the wanted servers, at least those of `models`, by these names."""
        self._command = tuple(command)
        self._read = read
        self._clock = clock
        self._timeout_s = timeout_s
        self._check_s = check_s
        self._start_s = start_s
        self._runs = {model: ModelRuns() for model in models}
        self._problems: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow the wanted numbers."""
        self._loop = asyncio.create_task(self._follow(), name="scale command")

    async def aclose(self) -> None:
        """End what runs, and return when it has ended."""
        tasks = {*self._tasks, *([] if self._loop is None else [self._loop])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def problems(self) -> tuple[str, ...]:
        """The models whose last run failed, as text."""
        return tuple(self._problems.values())

    async def _follow(self) -> None:
        await asyncio.sleep(self._start_s)
        while True:
            try:
                self._check()
            except Exception:
                log.exception("reading the wanted servers failed")
            await asyncio.sleep(self._check_s)

    def _check(self) -> None:
        scale, now = self._read(), self._clock()
        for model, runs in self._runs.items():
            one = scale[model]
            run = runs.due(one.wanted, one.traffic.servers, now)
            if run is not None:
                runs.run_began(run)
                task = asyncio.create_task(self._run(model, runs, run), name=f"scale {model}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run(self, model: str, runs: ModelRuns, run: Run) -> None:
        words = (run.direction.value, model, str(run.servers))
        log.info("scale.command %s begins", " ".join(words))
        problem = "it was ended"
        try:
            problem = await self._execute((*self._command, *words))
        except OSError as error:
            problem = f"it cannot be run: {error.strerror}"
        finally:
            runs.run_ended(self._clock(), is_done=not problem)
            if problem:
                self._problems[model] = f"scale.command {' '.join(words)}: {problem}"
                log.warning("%s", self._problems[model])
            else:
                self._problems.pop(model, None)
                log.info("scale.command %s ended", " ".join(words))

    async def _execute(self, command: Sequence[str]) -> str:
        """Run it to its end; returns what went wrong, empty if nothing did."""
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
        except BaseException:
            output.close()
            raise
        finally:
            output.close_sink()
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await process.wait()
        except TimeoutError:
            return f"it did not end within {self._timeout_s:g} s"
        finally:
            if process.returncode is None:
                await _end_group(process)
            output.close()
            for line in lines.read():
                log.info("scale.command: %s", line)
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
