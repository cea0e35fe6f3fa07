"""Virtual time: what is due next happens next."""

import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[float], None]


class Clock:
    """Runs actions in order of their time; of two at one moment, the one that was set first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._serial = count()

    def at(self, when: float, action: Action) -> None:
        heapq.heappush(self._due, (when, next(self._serial), action))

    def run(self, until: float = float("inf")) -> None:
        """Until nothing is due, or until that time."""
        while self._due and self._due[0][0] <= until:
            self.now, _, action = heapq.heappop(self._due)
            action(self.now)
