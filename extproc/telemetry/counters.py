"""Counters and histograms in plain Python: a few hundred nanoseconds for each call.

They belong to one thread, the event loop's; nothing here locks.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram at one moment. `counts` has one more entry than there are bounds."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    def plus(self, other: "Distribution") -> "Distribution":
        """Both together; they have the same bounds."""
        counts = tuple(map(sum, zip(self.counts, other.counts, strict=True)))
        return Distribution(self.bounds, counts, self.total + other.total)


class Histogram:
    """How often values fell between the bounds; a value equal to a bound falls below it."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def as_plain(self) -> tuple[list[int], float]:
        """For `add_plain`."""
        return list(self._counts), self._total

    def add_plain(self, plain: tuple[list[int], float]) -> None:
        """Go on from the values of another one. One with other bounds is ignored."""
        counts, total = plain
        if len(counts) == len(self._counts):
            self._counts = [one + more for one, more in zip(self._counts, counts, strict=True)]
            self._total += total

    def read(self) -> Distribution:
        return Distribution(self._bounds, tuple(self._counts), self._total)


class Counter:
    """Counts by label values. The caller bounds the number of label values."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}

    def add(self, *labels: str, count: int = 1) -> None:
        self._counts[labels] = self._counts.get(labels, 0) + count

    def read(self) -> dict[tuple[str, ...], int]:
        return dict(self._counts)
