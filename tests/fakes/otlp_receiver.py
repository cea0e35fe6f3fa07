"""An OTLP receiver on loopback, over gRPC and over HTTP, that keeps what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from extproc.demo.port import LOOPBACK

PATIENCE_S = 20.0
SERVICES = {
    "opentelemetry.proto.collector.trace.v1.TraceService": (
        ExportTraceServiceRequest,
        ExportTraceServiceResponse,
    ),
    "opentelemetry.proto.collector.metrics.v1.MetricsService": (
        ExportMetricsServiceRequest,
        ExportMetricsServiceResponse,
    ),
}


@dataclass
class OtlpReceiver:
    """What came in. While `hangs`, nothing is answered."""

    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)
    metadata: list[dict[str, str]] = field(default_factory=list)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    grpc_port: int = 0
    http_port: int = 0

    @property
    def grpc_url(self) -> str:
        return f"http://{LOOPBACK}:{self.grpc_port}"

    @property
    def http_url(self) -> str:
        return f"http://{LOOPBACK}:{self.http_port}"

    def spans(self, service: str | None = None) -> list[Span]:
        """All spans, or those of one `service.name`."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            if service is None or text_attributes(resource.resource)["service.name"] == service
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def latest_metrics(self) -> dict[str, Metric]:
        """The metrics of the last report, by name."""
        if not self.metrics:
            return {}
        return {
            metric.name: metric
            for resource in self.metrics[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    async def until(self, is_there: Callable[[], bool]) -> None:
        """Wait until enough came in; raises `TimeoutError` when it never does."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_there():
                self.arrived.clear()
                await self.arrived.wait()

    async def take_in(self, message: Any) -> None:
        await self.answers.wait()
        if isinstance(message, ExportTraceServiceRequest):
            self.traces.append(message)
        else:
            self.metrics.append(message)
        self.arrived.set()


def text_attributes(thing: Any) -> dict[str, str]:
    """The attributes of a span, a point or a resource, values as text."""
    return {
        one.key: str(getattr(one.value, one.value.WhichOneof("value") or "string_value"))
        for one in thing.attributes
    }


@asynccontextmanager
async def otlp_receiver() -> AsyncIterator[OtlpReceiver]:
    """Run one on free ports; it answers until `answers` is cleared."""
    receiver = OtlpReceiver()
    receiver.answers.set()
    server = grpc.aio.server()
    for service, (question, answer) in SERVICES.items():
        server.add_generic_rpc_handlers((_handler(receiver, service, question, answer),))
    receiver.grpc_port = server.add_insecure_port(f"{LOOPBACK}:0")
    await server.start()
    app = web.Application()
    for path, (question, answer) in zip(
        ("/v1/traces", "/v1/metrics"), SERVICES.values(), strict=True
    ):
        app.router.add_post(path, _http_handler(receiver, question, answer))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    receiver.http_port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        receiver.answers.set()
        await runner.cleanup()
        await server.stop(grace=None)


def _handler(receiver: OtlpReceiver, service: str, question: Any, answer: Any) -> Any:
    async def export(message: Any, context: Any) -> Any:
        receiver.metadata.append(dict(context.invocation_metadata()))
        await receiver.take_in(message)
        return answer()

    handler = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=question.FromString,
        response_serializer=answer.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(service, {"Export": handler})


def _http_handler(receiver: OtlpReceiver, question: Any, answer: Any) -> Any:
    async def export(request: web.Request) -> web.Response:
        receiver.metadata.append({key.lower(): value for key, value in request.headers.items()})
        await receiver.take_in(question.FromString(await request.read()))
        return web.Response(
            body=answer().SerializeToString(), content_type="application/x-protobuf"
        )

    return export
