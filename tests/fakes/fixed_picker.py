"""A picker without a mind: it names the destinations it was given and writes down what it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from extproc import header_names
from extproc.core.address import Address
from extproc.envoy_config import names
from extproc.pb import access_log_service_pb2
from extproc.pb.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from extproc.pb.endpoint_pb2 import ClusterLoadAssignment
from extproc.pb.external_processor_pb2 import ProcessingRequest, ProcessingResponse


@dataclass(slots=True, kw_only=True)
class FixedPicker:
    """`heard` has, in order, `("headers", path)`, `("served", facts)`, `("report", flags)`
    and `("end", path)`. While `holds` is set, a request is kept in a line without end; while
    `hangs` is set, it is not answered at all. `before` is sent ahead of the choice.
    """

    fleet: Sequence[str]
    destinations: str
    host_names: dict[str, str] = field(default_factory=dict)
    sends_header: bool = True
    holds: bool = False
    hangs: bool = False
    before: Sequence[ProcessingResponse] = ()
    heard: list[tuple[str, Any]] = field(default_factory=list)
    something_heard: asyncio.Condition = field(default_factory=asyncio.Condition)
    arrivals: list[str] = field(default_factory=list)
    """What Envoy says of when each request arrived, if it says so."""
    port: int = 0
    server: grpc.aio.Server = field(default_factory=grpc.aio.server)

    async def kill(self) -> None:
        """End at once, as if the process were gone."""
        await self.server.stop(grace=None)

    async def wait_for(self, kind: str) -> Any:
        """The first thing of that kind that was heard, now or later."""
        async with asyncio.timeout(10), self.something_heard:
            await self.something_heard.wait_for(lambda: any(k == kind for k, _ in self.heard))
        return next(what for k, what in self.heard if k == kind)

    async def _hear(self, kind: str, what: Any) -> None:
        async with self.something_heard:
            self.heard.append((kind, what))
            self.something_heard.notify_all()

    async def process(
        self,
        requests: AsyncIterator[ProcessingRequest],
        context: grpc.aio.ServicerContext[ProcessingRequest, ProcessingResponse],
    ) -> None:
        path = ""
        try:
            async for request in requests:
                if request.HasField("request_headers"):
                    headers = request.request_headers.headers.headers
                    path = next(h.raw_value for h in headers if h.key == ":path").decode()
                    self.arrivals += [
                        h.raw_value.decode() for h in headers if h.key == header_names.ARRIVED_AT
                    ]
                    await self._hear("headers", path)
                    for message in self.before:
                        await context.write(message)
                    if not self.hangs:
                        await context.write(self._hold() if self.holds else self._choice())
                elif request.HasField("response_headers"):
                    attributes = Struct.FromString(request.attributes[names.EXT_PROC_FILTER])
                    facts = MessageToDict(attributes)
                    facts["metadata"] = MessageToDict(request.metadata_context)
                    await self._hear("served", facts)
                    answer = ProcessingResponse()
                    answer.response_headers.SetInParent()
                    await context.write(answer)
        finally:
            await asyncio.shield(self._hear("end", path))

    def _hold(self) -> ProcessingResponse:
        answer = ProcessingResponse()
        answer.override_message_timeout.FromSeconds(600)
        return answer

    def _choice(self) -> ProcessingResponse:
        answer = ProcessingResponse()
        answer.request_headers.SetInParent()
        mutation = answer.request_headers.response.header_mutation
        if self.sends_header:
            added = mutation.set_headers.add()
            added.header.key = header_names.DESTINATION
            added.header.raw_value = self.destinations.encode()
        facts = {header_names.DESTINATION: self.destinations, header_names.EXCHANGE: "1"}
        answer.dynamic_metadata.update({header_names.LB_NAMESPACE: facts})
        return answer

    async def discover(
        self,
        requests: AsyncIterator[DiscoveryRequest],
        context: grpc.aio.ServicerContext[DiscoveryRequest, DiscoveryResponse],
    ) -> None:
        async for request in requests:
            if not request.response_nonce:
                answer = DiscoveryResponse(version_info="1", nonce="1", type_url=request.type_url)
                answer.resources.add().Pack(self._assignment(request.resource_names[0]))
                await context.write(answer)

    def _assignment(self, cluster: str) -> ClusterLoadAssignment:
        assignment = ClusterLoadAssignment(cluster_name=cluster)
        endpoints = assignment.endpoints.add().lb_endpoints
        for text in self.fleet:
            address = Address.parse(text)
            endpoint = endpoints.add().endpoint
            endpoint.hostname = self.host_names.get(text, "")
            endpoint.address.socket_address.address = address.host
            endpoint.address.socket_address.port_value = address.port
        return assignment

    async def take_reports(
        self,
        messages: AsyncIterator[access_log_service_pb2.StreamAccessLogsMessage],
        context: object,
    ) -> access_log_service_pb2.StreamAccessLogsResponse:
        async for message in messages:
            for entry in message.http_logs.log_entry:
                metadata = entry.common_properties.metadata.filter_metadata
                await self._hear("report", MessageToDict(metadata[header_names.LB_NAMESPACE]))
        return access_log_service_pb2.StreamAccessLogsResponse()


@asynccontextmanager
async def fixed_picker(picker: FixedPicker) -> AsyncIterator[FixedPicker]:
    """Serve ext_proc, discovery, end reports and health on its port of loopback, or a free one."""
    _add(
        picker.server,
        names.EXT_PROC_SERVICE,
        "Process",
        grpc.stream_stream_rpc_method_handler(
            picker.process,
            request_deserializer=ProcessingRequest.FromString,
            response_serializer=ProcessingResponse.SerializeToString,
        ),
    )
    _add(
        picker.server,
        "envoy.service.endpoint.v3.EndpointDiscoveryService",
        "StreamEndpoints",
        grpc.stream_stream_rpc_method_handler(
            picker.discover,
            request_deserializer=DiscoveryRequest.FromString,
            response_serializer=DiscoveryResponse.SerializeToString,
        ),
    )
    _add(
        picker.server,
        "envoy.service.accesslog.v3.AccessLogService",
        "StreamAccessLogs",
        grpc.stream_unary_rpc_method_handler(
            picker.take_reports,
            request_deserializer=access_log_service_pb2.StreamAccessLogsMessage.FromString,
            response_serializer=access_log_service_pb2.StreamAccessLogsResponse.SerializeToString,
        ),
    )
    servicer = health.aio.HealthServicer()
    await servicer.set(names.EXT_PROC_SERVICE, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, picker.server)
    picker.port = picker.server.add_insecure_port(f"127.0.0.1:{picker.port}")
    await picker.server.start()
    try:
        yield picker
    finally:
        await picker.server.stop(grace=None)


def _add(
    server: grpc.aio.Server, service: str, method: str, handler: grpc.RpcMethodHandler[Any, Any]
) -> None:
    generic = grpc.method_handlers_generic_handler(service, {method: handler})
    server.add_generic_rpc_handlers((generic,))
