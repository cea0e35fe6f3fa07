"""A reading as an OTLP message: the same names, labels and numbers as on `/metrics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1 import metrics_pb2

from extproc.telemetry.counters import Distribution
from extproc.telemetry.definitions import Family, Kind
from extproc.telemetry.reading import Reading, Values

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource


CUMULATIVE = metrics_pb2.AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def metrics_request(
    reading: Reading, resource: Resource, scope: InstrumentationScope
) -> ExportMetricsServiceRequest:
    """What is sent to a receiver. Metrics without a value are left out."""
    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add(resource=resource)
    metrics = resource_metrics.scope_metrics.add(scope=scope).metrics
    for family, values in reading.families.items():
        if values:
            _fill(metrics.add(), family, values, reading)
    return request


def _fill(metric: metrics_pb2.Metric, family: Family, values: Values, reading: Reading) -> None:
    metric.name, metric.description, metric.unit = family.name, family.help, family.unit
    if family.kind is Kind.HISTOGRAM:
        metric.histogram.aggregation_temporality = CUMULATIVE
    elif family.kind is Kind.COUNTER:
        metric.sum.aggregation_temporality = CUMULATIVE
        metric.sum.is_monotonic = True
    for labels, value in values.items():
        if isinstance(value, Distribution):
            histogram = metric.histogram.data_points.add(
                start_time_unix_nano=reading.since_ns,
                time_unix_nano=reading.taken_at_ns,
                count=value.count,
                sum=value.total,
                bucket_counts=value.counts,
                explicit_bounds=value.bounds,
            )
            _label(histogram.attributes, family.labels, labels)
            continue
        is_counter = family.kind is Kind.COUNTER
        points = metric.sum.data_points if is_counter else metric.gauge.data_points
        point = points.add(time_unix_nano=reading.taken_at_ns)
        if is_counter:
            point.start_time_unix_nano = reading.since_ns
        if isinstance(value, int):
            point.as_int = value
        else:
            point.as_double = value
        _label(point.attributes, family.labels, labels)


def _label(
    attributes: RepeatedCompositeFieldContainer[KeyValue],
    names: Sequence[str],
    values: Sequence[str],
) -> None:
    for name, value in zip(names, values, strict=True):
        attribute = attributes.add()
        attribute.key = name
        attribute.value.string_value = value
