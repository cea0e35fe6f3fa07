"""Exponentially decaying mean, linear regression and histogram.

A sample that is not finite, or beyond any that a server can honestly produce, is ignored: it would
make every later result invalid.
"""

from collections.abc import Iterable
from typing import Final

LARGEST: Final = 1e12
"""Samples beyond it are ignored. Its square is far from overflow."""
SMALLEST: Final = 1e-9
"""What is nearer to 0 counts as 0: nothing is divided by it."""
LARGEST_GAIN: Final = 1e12


def is_usable(value: float) -> bool:
    """Whether a sample is a number that can be calculated with; False for a NaN."""
    return -LARGEST <= value <= LARGEST


class DecayingMean:
    """A mean over about the last `1 / (1 - decay)` values, exact while there are fewer.

    With `clip`, a value counts at most as that multiple of the current mean, so that one outlier
    moves little and a lasting change is still followed. A mean of 0 bounds nothing.
    """

    __slots__ = ("_clip", "_decay", "_sum", "weight")

    def __init__(self, decay: float = 0.98, clip: float | None = None) -> None:
        self._decay = decay
        self._clip = clip
        self._sum = 0.0
        self.weight = 0.0

    def add(self, value: float) -> None:
        if not is_usable(value):
            return
        if self._clip is not None and self.weight > 1.5 and self._sum > 0.0:
            value = min(value, self._clip * self._sum / self.weight)
        self._sum = self._sum * self._decay + value
        self.weight = self.weight * self._decay + 1.0

    def as_plain(self) -> tuple[float, float]:
        """What it knows, for `restore`."""
        return (self._sum, self.weight)

    def restore(self, plain: tuple[float, float]) -> None:
        """Know what another one knew."""
        self._sum, self.weight = plain

    def value(self, default: float, prior_weight: float = 0.0) -> float:
        """The mean; `default` counts as `prior_weight` values, and alone if there are none."""
        total = self.weight + prior_weight
        return (self._sum + prior_weight * default) / total if total else default


class RobustLinearFit:
    """A line `y = a + b * x` through the samples, by least squares with exponential decay.

    A residual counts at most `CLIP` times its usual size (after Huber): outliers have little
    effect. If all samples lie on the line, a share `EXACT` of `y` is taken as the usual residual,
    because no later sample could change the line otherwise.
    """

    CLIP = 3.0
    EXACT = 0.01
    __slots__ = ("_decay", "_spread", "_x", "_xx", "_xy", "_y", "weight")

    def __init__(self, decay: float = 0.98) -> None:
        self._decay = decay
        self.weight = self._x = self._y = self._xx = self._xy = 0.0
        self._spread = DecayingMean(decay)

    def add(self, x: float, y: float) -> None:
        if not (is_usable(x) and is_usable(y)):
            return
        if abs(x) < SMALLEST:
            x = 0.0
        if self.weight >= 5.0:
            a, b = self.coefficients((0.0, 0.0), prior_weight=0.0)
            expected = a + b * x
            residual = y - expected
            usual = max(self._spread.value(abs(residual)), self.EXACT * abs(expected))
            bound = self.CLIP * (usual or abs(residual))
            self._spread.add(min(abs(residual), 2 * bound))
            y = expected + max(-bound, min(bound, residual))
        decay = self._decay
        self.weight = self.weight * decay + 1.0
        self._x = self._x * decay + x
        self._y = self._y * decay + y
        self._xx = self._xx * decay + x * x
        self._xy = self._xy * decay + x * y

    def as_plain(self) -> tuple[float, ...]:
        """What it knows, for `restore`."""
        sums = (self.weight, self._x, self._y, self._xx, self._xy)
        return (*sums, *self._spread.as_plain())

    def restore(self, plain: tuple[float, ...]) -> None:
        """Know what another one knew."""
        self.weight, self._x, self._y, self._xx, self._xy, total, weight = plain
        self._spread.restore((total, weight))

    def coefficients(
        self, default: tuple[float, float], prior_weight: float = 2.0
    ) -> tuple[float, float]:
        """`(a, b)`, neither below 0. `default` counts as `prior_weight` points if points are few.

        Points with equal x show `y` alone. By how much it differs from `default` is divided between
        `a` and `b * x` as their squares: each is as uncertain as it is large. So a point near 0
        changes `a` alone.
        """
        if not self.weight:
            return default
        a0, b0 = default
        mean_x, mean_y = self._x / self.weight, self._y / self.weight
        default_y = a0 + b0 * mean_x
        likely_y = (self.weight * mean_y + prior_weight * default_y) / (self.weight + prior_weight)
        squares = a0 * a0 + (b0 * mean_x) ** 2
        b = b0 + b0 * b0 * mean_x / squares * (likely_y - default_y) if squares else b0
        variance = self._xx - self.weight * mean_x * mean_x
        prior = prior_weight * max(1.0, mean_x * mean_x) * 0.05
        covariance = self._xy - self.weight * mean_x * mean_y
        b = max(0.0, (covariance + prior * b) / (variance + prior)) if variance + prior else 0.0
        a = likely_y - b * mean_x
        if a < 0.0:
            a, b = 0.0, (max(0.0, likely_y / mean_x) if abs(mean_x) >= SMALLEST else 0.0)
        return a, b


class DecayingHistogram:
    """Amounts by integer bucket, over about the last `1 / (1 - decay)` entries: a distribution that
    follows a changing workload.

    Each new entry weighs `1 / decay` times as much as the one before, so old entries lose weight
    without being touched. The weights are scaled back before they become too large. `add` is O(1),
    amortised; everything else is O(buckets in use), of which there are at most `2 * limit + 1`.
    """

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
