"""Runs the program in `scale.command` to start and stop servers.

    PROGRAM [ARGUMENT ...] up|down MODEL SERVERS

See `program` for how it is run.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from extproc.app.program import run_program
from extproc.core.scaling.runs import ModelRuns, Run
from extproc.core.views.scale_advisor import ModelScale

CHECK_S: Final = 1.0
START_S: Final = 5.0
"""After a start, agents and servers are given this time to appear before anything is run."""

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
            problem = await run_program(
                (*self._command, *words), self._timeout_s, "scale.command", log
            )
        finally:
            runs.run_ended(self._clock(), is_done=not problem)
            if problem:
                self._problems[model] = f"scale.command {' '.join(words)}: {problem}"
                log.warning("%s", self._problems[model])
            else:
                self._problems.pop(model, None)
                log.info("scale.command %s ended", " ".join(words))
