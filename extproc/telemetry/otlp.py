"""Sends traces and metrics to an OTLP receiver, each through its own queue."""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.sdk.resources import Resource as SdkResource

from extproc.core.exchange_record import ExchangeRecord
from extproc.core.placement.load_record import LoadRecord
from extproc.telemetry.batcher import Batcher, BatcherOptions
from extproc.telemetry.environment import OtlpOptions
from extproc.telemetry.otlp_metrics import metrics_request
from extproc.telemetry.reading import Reading
from extproc.telemetry.senders import Sender, metric_sender, span_sender
from extproc.telemetry.spans import SCHEMA_URL, Server, exchange_spans, load_spans
from extproc.telemetry.trace_context import TraceParent

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


FLUSH_S: Final = 2.0
"""The longest time to send the last spans and metrics when the process stops."""
BREAK_OFF_S: Final = 0.5
SERVICE_NAME: Final = "coxswain"


class OtlpExport:
    """`record` and `send` never block; `close` does, up to a few seconds."""

    def __init__(self, options: OtlpOptions, version: str, random: Random) -> None:
        self._random = random
        self._resource = _resource(version)
        self._scope = InstrumentationScope(name="coxswain", version=version)
        self._spans: Batcher[Span] | None = None
        self._readings: Batcher[Reading] | None = None
        self._senders: list[Sender] = []
        if options.traces is not None:
            self._span_sender = span_sender(options.traces, options.traces_to)
            self._senders.append(self._span_sender)
            self._spans = Batcher(
                "send spans",
                self._send_spans,
                BatcherOptions(
                    max_pending=options.max_pending_spans,
                    max_batch=options.max_batch_spans,
                    delay_s=options.schedule_delay_s,
                ),
            )
        if options.metrics is not None:
            self._metric_sender = metric_sender(options.metrics, options.metrics_to)
            self._senders.append(self._metric_sender)
            self._readings = Batcher(
                "send metrics",
                self._send_reading,
                # Counters are cumulative: a reading that is dropped loses nothing but a moment.
                BatcherOptions(max_pending=1, max_batch=1, delay_s=0.0),
            )

    @property
    def takes_spans(self) -> bool:
        return self._spans is not None

    @property
    def takes_readings(self) -> bool:
        return self._readings is not None

    def record(
        self,
        record: ExchangeRecord,
        trace_id: str,
        parent: TraceParent | None,
        ended_at_ns: int,
        server: Server,
    ) -> None:
        """Send the spans of an ended exchange, which `server` served if any did."""
        if self._spans is None:
            return
        for span in exchange_spans(record, trace_id, parent, ended_at_ns, self._random, server):
            self._spans.put(span)

    def record_load(self, record: LoadRecord, trace_id: str, ended_at_ns: int) -> None:
        """Send the spans of a load that ended."""
        if self._spans is not None:
            for span in load_spans(record, trace_id, ended_at_ns, self._random):
                self._spans.put(span)

    def send(self, reading: Reading) -> None:
        """Send all metrics, or drop them when the last ones are still on their way."""
        if self._readings is not None:
            self._readings.put(reading)

    def dropped(self) -> dict[str, int]:
        """The number of dropped items by signal."""
        counts: Counter[str] = Counter()
        if self._spans is not None:
            counts["spans"] = self._spans.dropped
        if self._readings is not None:
            counts["metrics"] = self._readings.dropped
        return dict(counts)

    def close(self) -> None:
        """Send what is left, within bounds; blocks."""
        pumps = [batcher for batcher in (self._spans, self._readings) if batcher is not None]
        until = time.monotonic() + FLUSH_S
        are_done = [batcher.close(max(0.0, until - time.monotonic())) for batcher in pumps]
        for sender in self._senders:
            sender.close()
        for batcher, is_done in zip(pumps, are_done, strict=True):
            if not is_done:
                batcher.close(BREAK_OFF_S)

    def _send_spans(self, spans: list[Span]) -> int:
        request = ExportTraceServiceRequest()
        resource_spans = request.resource_spans.add(resource=self._resource)
        resource_spans.scope_spans.add(scope=self._scope, spans=spans, schema_url=SCHEMA_URL)
        return 0 if self._span_sender.send(request) else len(spans)

    def _send_reading(self, readings: list[Reading]) -> int:
        request = metrics_request(readings[-1], self._resource, self._scope)
        return 0 if self._metric_sender.send(request) else 1


def _resource(version: str) -> Resource:
    """Who we are: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before our own words."""
    attributes = {"service.version": version, **SdkResource.create().attributes}
    resource = Resource()
    for key, value in attributes.items():
        text = str(value)
        if key == "service.name" and text.startswith("unknown_service"):
            text = SERVICE_NAME
        attribute = resource.attributes.add()
        attribute.key = key
        attribute.value.string_value = text
    return resource
