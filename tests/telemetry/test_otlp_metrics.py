"""Claims about extproc/telemetry/otlp_metrics.py: a reading as an OTLP message."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from extproc.telemetry import definitions
from extproc.telemetry.counters import Histogram
from extproc.telemetry.definitions import Family
from extproc.telemetry.otlp_metrics import CUMULATIVE, metrics_request
from extproc.telemetry.reading import Reading, Value
from tests.fakes.otlp_receiver import text_attributes


def sent(family: Family, values: dict[tuple[str, ...], Value]) -> list[Any]:
    reading = Reading(taken_at_ns=9, since_ns=4, families={family: values})
    request = metrics_request(reading, Resource(), InstrumentationScope(name="coxswain"))
    return list(request.resource_metrics[0].scope_metrics[0].metrics)


def test_a_gauge_is_of_its_moment() -> None:
    """Labels by name; a whole number stays one; there is no beginning to count from."""
    (metric,) = sent(definitions.SLOTS, {("gpu-1", "idle"): 2, ("gpu-1", "leased"): 0.5})
    assert (metric.name, metric.description) == (definitions.SLOTS.name, definitions.SLOTS.help)
    first, second = metric.gauge.data_points
    assert text_attributes(first) == {"endpoint": "gpu-1", "state": "idle"}
    assert (first.as_int, second.as_double) == (2, 0.5)
    assert (first.time_unix_nano, first.start_time_unix_nano) == (9, 0)


def test_a_counter_counts_from_the_start() -> None:
    """Receivers tell a restart by the beginning; without it they would see a fall."""
    (metric,) = sent(definitions.REQUESTS, {("served", "standard"): 7})
    assert metric.sum.is_monotonic and metric.sum.aggregation_temporality == CUMULATIVE
    (point,) = metric.sum.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (7, 4, 9)


def test_a_histogram_has_one_more_count_than_bounds() -> None:
    """OTLP's buckets do not cumulate, unlike those of the Prometheus text."""
    histogram = Histogram(definitions.PICK.buckets)
    for value in (0.00002, 0.00002, 5.0):
        histogram.observe(value)
    (metric,) = sent(definitions.PICK, {(): histogram.read()})
    (point,) = metric.histogram.data_points
    assert metric.unit == "s" and metric.histogram.aggregation_temporality == CUMULATIVE
    assert tuple(point.explicit_bounds) == definitions.PICK.buckets
    assert list(point.bucket_counts) == [0, 2, *[0] * (len(definitions.PICK.buckets) - 2), 1]
    assert (point.count, point.start_time_unix_nano) == (3, 4)


def test_what_has_no_value_is_left_out() -> None:
    """A metric without points would be an error to some receivers."""
    assert sent(definitions.SLO_REQUESTS, {}) == []
