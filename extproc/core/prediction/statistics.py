"""Running means that forget: small numbers that follow a changing world."""

from __future__ import annotations


class DecayingMean:
    """A mean over about the last `1 / (1 - decay)` values, exact while there are fewer.

    With `clip`, a value counts at most so many times the present mean, so that one odd value
    moves little and a lasting change still gets through. A mean of 0 bounds nothing.
    """

    __slots__ = ("_clip", "_decay", "_sum", "weight")

    def __init__(self, decay: float = 0.98, clip: float | None = None) -> None:
        self._decay = decay
        self._clip = clip
        self._sum = 0.0
        self.weight = 0.0

    def add(self, value: float) -> None:
        if self._clip is not None and self.weight > 1.5 and self._sum > 0.0:
            value = min(value, self._clip * self._sum / self.weight)
        self._sum = self._sum * self._decay + value
        self.weight = self.weight * self._decay + 1.0

    def value(self, default: float, trust: float = 0.0) -> float:
        """The mean; `default` counts as `trust` values, and alone while there are none."""
        total = self.weight + trust
        return (self._sum + trust * default) / total if total else default


class RobustLinearFit:
    """A straight line `y = a + b * x` through what was seen, by least squares that forget.

    A residual counts at most `CLIP` times its usual size (Huber's idea): outliers bend little.
    Where all that was seen lies on the line, a share `EXACT` of `y` is taken for usual: else
    nothing would ever bend it again.
    """

    CLIP = 3.0
    EXACT = 0.01
    __slots__ = ("_decay", "_n", "_spread", "_x", "_xx", "_xy", "_y")

    def __init__(self, decay: float = 0.98) -> None:
        self._decay = decay
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._spread = DecayingMean(decay)

    @property
    def weight(self) -> float:
        return self._n

    def add(self, x: float, y: float) -> None:
        if self._n >= 5.0:
            a, b = self.line((0.0, 0.0), trust=0.0)
            expected = a + b * x
            residual = y - expected
            usual = max(self._spread.value(abs(residual)), self.EXACT * abs(expected))
            bound = self.CLIP * (usual or abs(residual))
            self._spread.add(min(abs(residual), 2 * bound))
            y = expected + max(-bound, min(bound, residual))
        decay = self._decay
        self._n = self._n * decay + 1.0
        self._x = self._x * decay + x
        self._y = self._y * decay + y
        self._xx = self._xx * decay + x * x
        self._xy = self._xy * decay + x * y

    def line(self, default: tuple[float, float], trust: float = 2.0) -> tuple[float, float]:
        """`(a, b)`, neither below 0. `default` counts as `trust` points where points are few.

        Points of which all x are alike cannot tell `a` from `b`: then `default` holds as a whole,
        so many times as steep and as high as the points lie above it.
        """
        if not self._n:
            return default
        a0, b0 = default
        mean_x, mean_y = self._x / self._n, self._y / self._n
        default_y = a0 + b0 * mean_x
        if default_y:
            times = (mean_y * self._n + default_y * trust) / (default_y * (self._n + trust))
            a0, b0 = a0 * times, b0 * times
        variance = self._xx - self._n * mean_x * mean_x
        prior = trust * max(1.0, mean_x * mean_x) * 0.05
        covariance = self._xy - self._n * mean_x * mean_y
        b = max(0.0, (covariance + prior * b0) / (variance + prior)) if variance + prior else 0.0
        a = mean_y - b * mean_x
        if a < 0.0:
            a, b = 0.0, (mean_y / mean_x if mean_x else 0.0)
        if trust:
            a = (a * self._n + a0 * trust) / (self._n + trust)
        return a, b
