"""What was measured during a run, and whether a series is flat. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import mean, median

BLOCKS = 10
"""A series is judged by the medians of this number of blocks: neighbours in time are much alike."""
CONFIDENCE = 2.3
"""Student's t of 95 % for as many blocks: less than this many standard errors is noise."""
SMALLEST_SERIES = 3 * BLOCKS


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One moment of a run. Memory is resident; latencies are the median and the 99th percentile
    since the sample before, in milliseconds: of requests that took a slot, and of probes."""

    at_s: float
    requests: int
    picker_bytes: int
    envoy_bytes: int
    served_ms: tuple[float, float]
    probe_ms: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Trend:
    """A line through a series: `slope` for each step of x, with its standard error."""

    slope: float
    error: float

    @property
    def least(self) -> float:
        """The smallest slope that the noise allows."""
        return self.slope - CONFIDENCE * self.error


def trend(x: Sequence[float], y: Sequence[float]) -> Trend:
    """Least squares through the medians of blocks; of at least `SMALLEST_SERIES` points."""
    if len(x) < SMALLEST_SERIES:
        raise ValueError(f"{len(x)} points are too few for a trend")
    edges = [round(index * len(x) / BLOCKS) for index in range(BLOCKS + 1)]
    spans = [slice(*edge) for edge in pairwise(edges)]
    xs = [mean(x[span]) for span in spans]
    ys = [median(y[span]) for span in spans]
    x0, y0 = mean(xs), mean(ys)
    width = sum((one - x0) ** 2 for one in xs)
    slope = sum((one - x0) * (other - y0) for one, other in zip(xs, ys, strict=True)) / width
    rest = sum((other - y0 - slope * (one - x0)) ** 2 for one, other in zip(xs, ys, strict=True))
    return Trend(slope, sqrt(rest / (BLOCKS - 2) / width))


def last_third(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Those after two thirds of the requests."""
    begin = samples[-1].requests * 2 / 3
    return [sample for sample in samples if sample.requests >= begin]
