"""A reading as Prometheus text, written by prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from extproc.telemetry.families import Kind
from extproc.telemetry.reading import FamilyReading, Reading
from extproc.telemetry.tallies import Distribution


def prometheus_text(reading: Reading) -> bytes:
    """What `/metrics` answers. Takes milliseconds for a large fleet; may run in any thread."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(reading))
    return generate_latest(registry)


class _Collector(Collector):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._reading.families)


def _metric(read: FamilyReading) -> Metric:
    family = read.family
    if family.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in read.values.items():
            assert isinstance(value, Distribution)
            histogram.add_metric(labels, _cumulated(value), value.total)
        return histogram
    kind = CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in read.values.items():
        assert not isinstance(value, Distribution)
        metric.add_metric(labels, value)
    return metric


def _cumulated(value: Distribution) -> list[tuple[str, float]]:
    bounds = (*map(floatToGoString, value.bounds), "+Inf")
    return list(zip(bounds, accumulate(value.counts), strict=True))
