"""Runs the program in `scale.command` to start and stop servers.

    PROGRAM [ARGUMENT ...] up|down MODEL SERVERS

See `program` for how it is run.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from extproc.app.program import CHECK_S, START_S, ProgramRuns, run_program
from extproc.core.scaling.runs import ModelRuns, Run
from extproc.core.views.scale_advisor import ModelScale

log = logging.getLogger("coxswain.scale")


class ScaleCommand(ProgramRuns):
    """Each model has at most one run at a time."""

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
        super().__init__("reading the wanted servers", log, check_s, start_s)
        self._command = tuple(command)
        self._read = read
        self._clock = clock
        self._timeout_s = timeout_s
        self._runs = {model: ModelRuns() for model in models}
        self._problems: dict[str, str] = {}

    def problems(self) -> tuple[str, ...]:
        """The models whose last run failed, as text."""
        return tuple(self._problems.values())

    def check(self) -> None:
        """Begin the runs that are due."""
        scale, now = self._read(), self._clock()
        for model, runs in self._runs.items():
            one = scale[model]
            run = runs.due(one.wanted, one.traffic.servers, now)
            if run is not None:
                runs.run_began(run)
                self._begin(self._run(model, runs, run), f"scale {model}")

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
