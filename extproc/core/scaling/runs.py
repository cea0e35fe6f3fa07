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
MAX_DOUBLINGS: Final = 10
REPEAT_S: Final = 300.0


class Direction(Enum):
    """Whether servers are to be started or stopped."""

    UP = "up"
    DOWN = "down"


class Run(NamedTuple):
    """One run: there should be `servers`."""

    direction: Direction
    servers: int


class Tries:
    """When something that fails may be tried again: after `least_s`, which doubles with each
    failure in a row up to `most_s`."""

    __slots__ = ("_least_s", "_most_s", "failures", "next_at")

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self.failures = 0
        self.next_at = -inf

    def failed(self, now: float) -> None:
        """The last try failed."""
        self.next_at = now + min(self._most_s, self._least_s * 2.0**self.failures)
        self.failures = min(self.failures + 1, MAX_DOUBLINGS)

    def succeeded(self) -> None:
        """It may be tried at any time."""
        self.failures, self.next_at = 0, -inf


class ModelRuns:
    """For one model. Every call is O(1)."""

    __slots__ = ("_applied", "_running", "_since", "_tries")

    def __init__(self) -> None:
        self._applied: int | None = None
        """The number of the last run that succeeded."""
        self._running: Run | None = None
        self._tries = Tries(MIN_DELAY_S, MAX_DELAY_S)
        self._since = inf
        """Since when what serves differs from what is wanted, without a run."""

    def due(self, wanted: int, servers: int, now: float) -> Run | None:
        """The run that should begin now; None if none should."""
        if self._running is not None or now < self._tries.next_at:
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
            self._applied = run.servers
            self._tries.succeeded()
        else:
            self._tries.failed(now)
