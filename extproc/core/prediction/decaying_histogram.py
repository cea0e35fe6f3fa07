"""A histogram with exponential decay: a distribution that follows a changing workload.

Each new entry weighs `1 / decay` times as much as the one before, so old entries lose weight
without being touched. The weights are scaled back before they become too large.
"""

from collections.abc import Iterable
from typing import Final

LARGEST_GAIN: Final = 1e12


class DecayingHistogram:
    """Amounts by integer bucket, over about the last `1 / (1 - decay)` entries. `add` is O(1),
    amortised; everything else is O(buckets in use), of which there are at most `2 * limit + 1`."""

    __slots__ = ("_amounts", "_decay", "_gain", "_limit", "_total")

    def __init__(self, decay: float = 0.99, limit: int = 40) -> None:
        """Buckets beyond `limit`, in either direction, count as that one."""
        self._decay = decay
        self._limit = limit
        self._gain = 1.0
        self._total = 0.0
        self._amounts: dict[int, float] = {}

    @property
    def weight(self) -> float:
        """The decayed sum of all amounts."""
        return self._total / self._gain

    def add(self, bucket: int, amount: float = 1.0) -> None:
        """Add an amount, which must not be negative."""
        self._gain /= self._decay
        if self._gain > LARGEST_GAIN:
            self._scale_back()
        bucket = max(-self._limit, min(self._limit, bucket))
        weighed = amount * self._gain
        self._amounts[bucket] = self._amounts.get(bucket, 0.0) + weighed
        self._total += weighed

    def shares(self) -> Iterable[tuple[int, float]]:
        """Each bucket in use with its share of the whole, in no order; empty without entries."""
        total = self._total
        return [(bucket, amount / total) for bucket, amount in self._amounts.items() if total]

    def share_below(self, bucket: int) -> float:
        """The share of all lower buckets; 0 without entries."""
        return sum(share for each, share in self.shares() if each < bucket)

    def quantile(self, share: float) -> int | None:
        """The lowest bucket up to which at least this share lies; None without entries."""
        reached = 0.0
        last: int | None = None
        for bucket, one in sorted(self.shares()):
            reached += one
            last = bucket
            if reached >= share:
                break
        return last

    def _scale_back(self) -> None:
        gain = self._gain
        scaled = {bucket: amount / gain for bucket, amount in self._amounts.items()}
        self._amounts = {bucket: amount for bucket, amount in scaled.items() if amount > 1e-9}
        self._total = sum(self._amounts.values())
        self._gain = 1.0
