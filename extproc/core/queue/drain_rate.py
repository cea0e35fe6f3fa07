"""How fast the queue drains: the mean time between assignments, used until speeds are learned."""

WEIGHT = 0.2
"""Weight of the newest gap in the mean (exponential smoothing)."""
MIN_RETRY_S, MAX_RETRY_S = 1.0, 60.0


class DrainRate:
    """Exponentially smoothed mean of the seconds between two assignments while requests queue."""

    __slots__ = ("_last", "_mean_gap_s")

    def __init__(self) -> None:
        self._last: float | None = None
        self._mean_gap_s = 0.0

    def slot_assigned(self, now: float) -> None:
        """A queued request got a slot."""
        if self._last is not None:
            gap = now - self._last
            self._mean_gap_s += WEIGHT * (gap - self._mean_gap_s) if self._mean_gap_s else gap
        self._last = now

    def queue_emptied(self) -> None:
        """The queue is empty: the time until the next assignment says nothing about the rate."""
        self._last = None

    def expected_s(self, position: float) -> float | None:
        """Seconds until the request at `position` (from 1) is served; None if unknown."""
        return self._mean_gap_s * position if self._mean_gap_s else None
