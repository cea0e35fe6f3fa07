"""Measures by how much the event loop is late: while it is, the picker answers nobody.

Everything shares one event loop. When it is blocked (no CPU, memory on disk, a stopped process),
Envoy's message timeouts and the scraper's own timeouts pass, although no server is slow.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from extproc.app.monitoring.recent import RECENT_TEXT, RecentValues
from extproc.telemetry.counters import Distribution, Histogram
from extproc.telemetry.definitions import EVENT_LOOP_LAG

INTERVAL_S: Final = 0.1
NOTED_S: Final = 0.05
"""A shorter lag is ordinary work."""
MAX_NOTED: Final = 1024

log = logging.getLogger("coxswain.service")


class LoopLag:
    """A timer that notes how late it fires. Belongs to one event loop; costs ten callbacks a
    second."""

    def __init__(
        self, clock: Callable[[], float], tolerable_s: float, process: str = "the picker"
    ) -> None:
        """A lag of `tolerable_s` or more is a problem; `process` names this one in its text."""
        self._process = process
        self._clock = clock
        self._tolerable_s = tolerable_s
        self._histogram = Histogram(EVENT_LOOP_LAG.buckets)
        self._noted: deque[tuple[float, float]] = deque(maxlen=MAX_NOTED)
        self._recent = RecentValues(clock)
        self._due_at: float | None = None
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None

    def start(self) -> None:
        """Measure from now on."""
        self._due_at = self._clock() + INTERVAL_S
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._fire)

    def stop(self) -> None:
        """Stop measuring; calling it twice is no error."""
        self._due_at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def read(self) -> Distribution:
        """All lags since the start, in seconds."""
        return self._histogram.read()

    @property
    def worst_s(self) -> float:
        """The longest lag of the last minutes, in seconds."""
        return self._recent.highest

    @property
    def is_bad(self) -> bool:
        """Whether a lag of the last minutes was a problem."""
        return self._recent.highest >= self._tolerable_s

    def lost_s(self, since: float) -> float:
        """For how many seconds since that moment (by the clock) the event loop was blocked, as far
        as it was noted, including the present."""
        lost_s = self._overdue_s()
        for noted_at, lag_s in reversed(self._noted):
            if noted_at < since:
                break
            lost_s += min(lag_s, noted_at - since)
        return lost_s

    def problems(self) -> tuple[str, ...]:
        """What is wrong, as text for operators; empty without a problem."""
        return (self._text(),) if self.is_bad else ()

    def _fire(self) -> None:
        lag_s = self._overdue_s()
        self.start()
        self._histogram.observe(lag_s)
        if lag_s < NOTED_S:
            return
        self._noted.append((self._clock(), lag_s))
        was_bad = self.is_bad
        self._recent.add(lag_s)
        if self.is_bad and not was_bad:
            log.warning("%s", self._text())

    def _overdue_s(self) -> float:
        return 0.0 if self._due_at is None else max(0.0, self._clock() - self._due_at)

    def _text(self) -> str:
        return (
            f"{self._process} itself was blocked for up to {self._recent.highest:.1f} s "
            f"{RECENT_TEXT}, and answered nobody meanwhile: give it a CPU core of its own and "
            "enough memory"
        )
