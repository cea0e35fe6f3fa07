"""When the program that starts and stops servers of one model is run, and with which number.

It is run with the number of servers that is wanted, whenever that differs from the number of its
last run, or, before the first, from the servers that serve. One run at a time; after one that
failed the next comes 1, 2, 4 up to 60 s later. If the servers that serve still differ from what is
wanted `REPEAT_S` after a run, it is run again with the same number: a server may have died.
"""

from enum import Enum
from math import inf
from typing import Final, NamedTuple

MIN_DELAY_S: Final = 1.0
MAX_DELAY_S: Final = 60.0
REPEAT_S: Final = 300.0


class Direction(Enum):
    """Whether servers are to be started or stopped."""

    UP = "up"
    DOWN = "down"


class Run(NamedTuple):
    """One run: there should be `servers`."""

    direction: Direction
    servers: int


class ModelRuns:
    """For one model. Every call is O(1)."""

    __slots__ = ("_applied", "_failures", "_next_at", "_running", "_since")

    def __init__(self) -> None:
        self._applied: int | None = None
        """The number of the last run that succeeded."""
        self._running: Run | None = None
        self._failures = 0
        self._next_at = -inf
        self._since = inf
        """Since when what serves differs from what is wanted, without a run."""

    def due(self, wanted: int, servers: int, now: float) -> Run | None:
        """The run that should begin now; None if none should."""
        if self._running is not None or now < self._next_at:
            return None
        known = servers if self._applied is None else self._applied
        if wanted == known:
            if wanted == servers:
                self._since = inf
                return None
            self._since = min(self._since, now)
            if now - self._since < REPEAT_S:
                return None
            known = servers
        return Run(Direction.UP if wanted > known else Direction.DOWN, wanted)

    def run_began(self, run: Run) -> None:
        """The program was started, or tried to."""
        assert self._running is None, "one at a time"
        self._running = run

    def run_ended(self, now: float, *, is_done: bool) -> None:
        """The run is over; `is_done` if it succeeded."""
        assert self._running is not None
        run, self._running = self._running, None
        self._since = inf
        if is_done:
            self._applied, self._failures = run.servers, 0
            return
        self._next_at = now + min(MAX_DELAY_S, MIN_DELAY_S * 2.0**self._failures)
        self._failures = min(self._failures + 1, 10)
