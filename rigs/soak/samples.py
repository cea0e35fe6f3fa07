"""What was measured during a run, and whether a series is flat. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import linear_regression, mean, median

from bench.result import Row

BLOCKS = 10
"""A series is judged by the medians of this number of blocks: neighbours in time are much alike."""
CONFIDENCE = 2.3
"""Student's t of 95 % for as many blocks: less than this many standard errors is noise."""
SMALLEST_SERIES = 3 * BLOCKS
MEMORY_TARGET_BYTES = 8.0
"""For each request: what gRPC's smallest loss was is 96."""
LATENCY_TARGET = 0.1
"""Of the median, over the last third of the run."""
MIB = 1024 * 1024


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
    slope, base = linear_regression(xs, ys)
    middle = mean(xs)
    width = sum((one - middle) ** 2 for one in xs)
    rest = sum((other - base - slope * one) ** 2 for one, other in zip(xs, ys, strict=True))
    return Trend(slope, sqrt(rest / (BLOCKS - 2) / width))


def last_third(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Those after two thirds of the requests."""
    begin = samples[-1].requests * 2 / 3
    return [sample for sample in samples if sample.requests >= begin]


def flatness(samples: Sequence[Sample]) -> list[Row]:
    """Memory and latency at the ends of the last third, and whether they rise within it."""
    tail = last_third(samples) if samples else ()
    if len(tail) < SMALLEST_SERIES:
        return [Row(what="memory and latency", value="the run was too short", target="flat")]
    x = [float(sample.requests) for sample in tail]
    memory = trend(x, [float(sample.picker_bytes) for sample in tail])
    rows = [
        Row(
            what="memory of the picker, after two thirds and at the end",
            value=f"{tail[0].picker_bytes / MIB:.1f} MiB, {tail[-1].picker_bytes / MIB:.1f} MiB",
        ),
        Row(
            what="memory growth over the last third, bytes/request",
            value=f"{memory.slope:.1f} ± {memory.error:.1f}",
            target=f"<= {MEMORY_TARGET_BYTES:g} within noise",
            is_met=memory.least <= MEMORY_TARGET_BYTES,
        ),
    ]
    latencies = {
        "served requests": [sample.served_ms[0] for sample in tail],
        "requests that take no slot": [sample.probe_ms[0] for sample in tail],
    }
    for what, values in latencies.items():
        line, usual = trend(x, values), sorted(values)[len(values) // 2]
        share = (x[-1] - x[0]) / usual
        rows += [
            Row(
                what=f"median latency of {what}, and its change over the last third",
                value=f"{usual:.1f} ms, {100 * line.slope * share:+.1f} % "
                f"± {100 * line.error * share:.1f} %",
                target=f"<= {100 * LATENCY_TARGET:g} % within noise",
                is_met=line.least * share <= LATENCY_TARGET,
            )
        ]
    return rows
