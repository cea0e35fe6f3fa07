"""The ways to a receiver: the OpenTelemetry SDK's OTLP exporters, fed with ready messages.

The exporters bring what the `OTEL_EXPORTER_OTLP_*` variables ask for: endpoint, headers, TLS,
compression, timeout and retries. Their encoders are passed by, see `spans.py`; where that
needs a name of theirs which is not public, it stands here and nowhere else.
"""

import logging
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import (
    OTLPMetricExporter as GrpcMetricExporter,
)
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
    OTLPMetricExporter as HttpMetricExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpSpanExporter,
)

from extproc.telemetry.environment import Protocol

log = logging.getLogger("coxswain.telemetry")


class Sender:
    """Sends messages of one signal. `send` blocks up to the exporter's timeout; logs changes."""

    def __init__(
        self,
        signal: str,
        to: str,
        transmit: Callable[[Message], bool],
        shutdown: Callable[[], None],
    ) -> None:
        self._signal = signal
        self._to = to
        self._transmit = transmit
        self._shutdown = shutdown
        self._is_failing = False

    def send(self, message: Message) -> bool:
        """Returns whether the receiver has it. Never raises for what the network does."""
        try:
            is_sent = self._transmit(message)
        except Exception as error:
            log.debug("the exporter failed", exc_info=error)
            is_sent = False
        if is_sent is self._is_failing:
            self._is_failing = not is_sent
            if is_sent:
                log.info("%s reach %s again", self._signal, self._to)
            else:
                log.warning(
                    "%s cannot be sent to %s; requests are not affected", self._signal, self._to
                )
        return is_sent

    def close(self) -> None:
        """Break off what is being sent, and send no more."""
        self._shutdown()


def span_sender(protocol: Protocol, to: str) -> Sender:
    """Sends `ExportTraceServiceRequest`."""
    return _sender("traces", to, protocol, HttpSpanExporter, _ReadySpans)


def metric_sender(protocol: Protocol, to: str) -> Sender:
    """Sends `ExportMetricsServiceRequest`."""
    return _sender("metrics", to, protocol, HttpMetricExporter, _ReadyMetrics)


def _sender(
    signal: str, to: str, protocol: Protocol, http: Callable[[], Any], grpc: Callable[[], Any]
) -> Sender:
    # We log once that a receiver fails; the exporters would log every attempt.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    is_http = protocol is Protocol.HTTP
    exporter = http() if is_http else grpc()
    transmit = _over_http(exporter) if is_http else _over_grpc(exporter)
    return Sender(signal, to, transmit, exporter.shutdown)


class _Ready:
    """Takes the message itself where an exporter of the SDK takes spans or metrics."""

    def _translate_data(self, data: Any) -> Any:
        return data

    def _count_data(self, _: Any) -> int:
        """For measurements of the SDK's own, which nobody reads."""
        return 1


class _ReadySpans(_Ready, GrpcSpanExporter):
    pass


class _ReadyMetrics(_Ready, GrpcMetricExporter):
    pass


def _over_grpc(exporter: Any) -> Callable[[Message], bool]:
    return lambda message: bool(exporter.export(message).name == "SUCCESS")


def _over_http(exporter: Any) -> Callable[[Message], bool]:
    client = exporter._client  # noqa: SLF001 - its public way in encodes spans of the SDK
    return lambda message: bool(client.export(message.SerializeToString()).success)
