"""The schedule of scrapes. Pure: time and randomness are arguments.

    result of the scrape                      | interval
    ------------------------------------------|---------------------------------------
    ready, high priority                      | fast, with a pause after every few scrapes
    ready, other priority                     | slow
    ready, /slots is still open               | fast
    ready, without reported slots             | slow: frequent scrapes show nothing more
    loading                                   | fast
    asleep                                    | slow; fast while a lease of ours wakes it
    unreachable, failed                       | fast at first, then doubling up to slow

Every interval is spread by the jitter, so that the scrapes of a fleet do not synchronise.

Why the pause: llama-server notices that the client of an unstreamed response has left only after
a whole second without a result of any task, and each response to /slots is such a result
(docs/decisions/0007-pauses-between-fast-scrapes.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from extproc.core.observation import Observation, ScrapeStatus
from extproc.runners.issues import SLOW_SLOTS
from extproc.runners.probe import ScrapePriority

PAUSE_S = 1.2
"""Longer than the second after which llama-server checks for clients that left."""
SCRAPES_BETWEEN_PAUSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """Intervals in seconds. `eager_s` is how long a dead server is scraped at the fast interval;
    `jitter` is the share of an interval by which it varies to both sides."""

    fast_s: float = 0.2
    slow_s: float = 2.0
    eager_s: float = 5.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.fast_s <= self.slow_s:
            raise ValueError(f"0 < fast_s <= slow_s must hold, not {self.fast_s}, {self.slow_s}")
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter must be at least 0 and less than 1, not {self.jitter}")
        if self.eager_s < 0:
            raise ValueError(f"eager_s must be at least 0, not {self.eager_s}")


class Schedule:
    """The cadence of one endpoint: since when it fails, and the number of fast scrapes since the
    last pause."""

    def __init__(self, cadence: Cadence, random: Callable[[], float]) -> None:
        """`random` gives numbers in [0, 1)."""
        self._cadence = cadence
        self._random = random
        self._failing_since: float | None = None
        self._backoff_s = cadence.fast_s
        self._scrapes_since_pause = 0

    def next_delay_s(self, now: float, observation: Observation, priority: ScrapePriority) -> float:
        """Seconds from `now` to the next scrape, after `observation`. Call it once per scrape."""
        interval_s = self._interval_s(now, observation, priority)
        if priority is ScrapePriority.HIGH and observation.busy_slots is not None:
            self._scrapes_since_pause += 1
            if self._scrapes_since_pause > SCRAPES_BETWEEN_PAUSES:
                self._scrapes_since_pause = 0
                return max(interval_s, PAUSE_S)
        else:
            self._scrapes_since_pause = 0
        jitter = self._cadence.jitter * (2 * self._random() - 1)
        return interval_s * (1 + jitter)

    def _interval_s(self, now: float, observation: Observation, priority: ScrapePriority) -> float:
        fast_s, slow_s = self._cadence.fast_s, self._cadence.slow_s
        status = observation.status
        if status is ScrapeStatus.UNREACHABLE or status is ScrapeStatus.FAILED:
            return self._failing_interval_s(now)
        self._failing_since = None
        if status is ScrapeStatus.LOADING:
            return fast_s
        if status is ScrapeStatus.ASLEEP:
            return slow_s if priority is ScrapePriority.IDLE else fast_s
        if status is ScrapeStatus.READY:
            if observation.busy_slots is None:
                is_slow = any(issue.code == SLOW_SLOTS for issue in observation.issues)
                return fast_s if is_slow else slow_s
            return fast_s if priority is ScrapePriority.HIGH else slow_s
        assert_never(status)

    def _failing_interval_s(self, now: float) -> float:
        if self._failing_since is None:
            self._failing_since = now
            self._backoff_s = self._cadence.fast_s
        elif now - self._failing_since >= self._cadence.eager_s:
            self._backoff_s = min(2 * self._backoff_s, self._cadence.slow_s)
        return self._backoff_s
