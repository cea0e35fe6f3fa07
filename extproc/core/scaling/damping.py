"""Keeps the number of wanted servers from flapping: up at once, down after a while.

The result is the highest number that was recommended in the last `down_after_s`, as in the
stabilization window of Kubernetes' HorizontalPodAutoscaler. So a number is never below one that was
needed less than `down_after_s` ago. None is wanted only after `idle_s` without a request, which is
long enough by itself: 0 counts at once.
"""

from collections import deque


class Damping:
    """For one model. O(1) a call, amortised; holds at most one entry for each number of servers."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: deque[tuple[float, int]] = deque()
        """When each number was recommended last: older first, and higher first."""

    def settle(self, servers: int, down_after_s: float, now: float) -> int:
        """The number of servers that counts, after one more recommendation."""
        recent = self._recent
        if servers == 0:
            recent.clear()
            return 0
        while recent and recent[-1][1] <= servers:
            recent.pop()
        recent.append((now, servers))
        while recent[0][0] < now - down_after_s:
            recent.popleft()
        return recent[0][1]
