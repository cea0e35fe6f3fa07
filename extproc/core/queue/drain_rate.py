"""How fast the line moves: the mean time between hand-overs, while no speeds are learned."""

from __future__ import annotations

WEIGHT = 0.2
"""Of the newest gap in the running mean (exponential smoothing)."""
MIN_RETRY_S, MAX_RETRY_S = 1.0, 60.0


class DrainRate:
    """A running mean of the seconds between two hand-overs while somebody waits."""

    __slots__ = ("_last", "_mean_gap_s")

    def __init__(self) -> None:
        self._last: float | None = None
        self._mean_gap_s = 0.0

    def slot_assigned(self, now: float) -> None:
        """A waiting request got a slot."""
        if self._last is not None:
            gap = now - self._last
            self._mean_gap_s += WEIGHT * (gap - self._mean_gap_s) if self._mean_gap_s else gap
        self._last = now

    def queue_emptied(self) -> None:
        """Nobody waits: the time until the next hand-over says nothing about the pace."""
        self._last = None

    def expected_s(self, position: int) -> float | None:
        """Seconds until the one at `position` (from 1) is served; None while nobody was."""
        return self._mean_gap_s * position if self._mean_gap_s else None
