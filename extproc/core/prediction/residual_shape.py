"""The shape of a distribution around its estimate: factors, as decaying shares of logarithms."""

from bisect import bisect_left
from itertools import accumulate
from math import exp, inf
from typing import Final

from extproc.core.prediction.statistics import DecayingHistogram

STEP: Final = 0.25
"""The width of a bucket, in natural logarithms."""
LIMIT: Final = 40
REFRESH: Final = 16
"""After this number of new factors the table of the mean is made again."""
_GROWTH: Final = [exp(STEP * bucket) for bucket in range(-LIMIT, LIMIT + 1)]


class ResidualShape:
    """Factors of outcomes to estimates. `add` is O(1), `mean` O(log buckets), amortised."""

    __slots__ = ("_factors", "_histogram", "_moments", "_shares", "_stale")

    def __init__(self, decay: float) -> None:
        self._histogram = DecayingHistogram(decay, LIMIT)
        self._factors: list[float] = []
        self._shares: list[float] = [0.0]
        self._moments: list[float] = [0.0]
        """The sums over the factors below each index: of the shares, and of factor times share."""
        self._stale = REFRESH

    @property
    def weight(self) -> float:
        """The decayed number of factors."""
        return self._histogram.weight

    def add(self, residual: float) -> None:
        """An outcome was `exp(residual)` times its estimate."""
        self._histogram.add(round(residual / STEP))
        self._stale += 1

    def mean(self, scale: float, offset: float, limit: float) -> float:
        """The mean of `scale * factor - offset`, of which none counts below 0 or above `limit`."""
        if self._stale >= REFRESH:
            self._refresh()
        factors, shares, moments = self._factors, self._shares, self._moments
        low = bisect_left(factors, offset / scale)
        if limit == inf:
            return scale * (moments[-1] - moments[low]) - offset * (shares[-1] - shares[low])
        high = bisect_left(factors, (limit + offset) / scale)
        inner = scale * (moments[high] - moments[low]) - offset * (shares[high] - shares[low])
        beyond = shares[-1] - shares[high]
        return inner + beyond * limit if beyond > 0.0 else inner

    def _refresh(self) -> None:
        self._stale = 0
        found = sorted(self._histogram.shares())
        self._factors = [_GROWTH[bucket + LIMIT] for bucket, _ in found]
        self._shares = list(accumulate((share for _, share in found), initial=0.0))
        products = (_GROWTH[bucket + LIMIT] * share for bucket, share in found)
        self._moments = list(accumulate(products, initial=0.0))
