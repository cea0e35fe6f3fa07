"""What happened in the last minutes."""

from collections import deque
from collections.abc import Callable
from typing import Final

RECENT_S: Final = 300.0
RECENT_TEXT: Final = "in the last 5 minutes"
BUCKET_S: Final = 10.0
"""Events of one bucket are forgotten together."""


class RecentValues:
    """The sum and the highest of values that were added within `RECENT_S`; memory is bounded."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._buckets: deque[tuple[float, float, float]] = deque()

    def add(self, value: float) -> None:
        began_at = self._clock() // BUCKET_S * BUCKET_S
        total = highest = 0.0
        if self._buckets and self._buckets[-1][0] == began_at:
            _, total, highest = self._buckets.pop()
        self._buckets.append((began_at, total + value, max(highest, value)))
        self._forget()

    @property
    def total(self) -> float:
        """The sum; 0 if nothing was added."""
        self._forget()
        return sum(total for _, total, _ in self._buckets)

    @property
    def highest(self) -> float:
        """The highest value; 0 if nothing was added."""
        self._forget()
        return max((highest for _, _, highest in self._buckets), default=0.0)

    def _forget(self) -> None:
        oldest_at = self._clock() - RECENT_S
        while self._buckets and self._buckets[0][0] < oldest_at:
            self._buckets.popleft()
