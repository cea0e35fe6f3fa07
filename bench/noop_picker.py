"""The floor: a grpc.aio ext_proc server that answers at once and decides nothing.

At another port it serves discovery with one fixed endpoint, so that Envoy has somewhere to go.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Final

import grpc

from extproc.app.discovery.served_cluster import ServedCluster
from extproc.core.address import Address
from extproc.core.fleet.membership import Member, Membership
from extproc.pb import external_processor_pb2 as pb
from extproc.pb import external_processor_pb2_grpc as pb_grpc
from extproc.settings import Settings
from extproc.transport import ServiceTable
from extproc.transport.health import Health
from extproc.transport.http2_server import Http2Server
from extproc.xds import ClusterDiscovery, EndpointDiscovery

OPTIONS: Final = (
    # Envoy pings a quiet connection, and must not be cut off for it.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    # Without what gRPC would do for each message and Envoy does not need.
    ("grpc.per_message_compression", 0),
    ("grpc.per_message_decompression", 0),
    ("grpc.enable_deadline_checking", 0),
)


class NoOp(pb_grpc.ExternalProcessorServicer):
    async def Process(  # noqa: N802  # gRPC names it
        self, request_iterator: AsyncIterator[pb.ProcessingRequest], context: object
    ) -> AsyncIterator[pb.ProcessingResponse]:
        async for request in request_iterator:
            reply = self._reply(request)
            del request  # who waits for the next message needs it no more
            yield reply

    def _reply(self, request: pb.ProcessingRequest) -> pb.ProcessingResponse:
        if request.HasField("request_headers"):
            return pb.ProcessingResponse(request_headers=pb.HeadersResponse())
        return pb.ProcessingResponse(response_headers=pb.HeadersResponse())


class Holding(NoOp):
    """Asks Envoy to wait with what has a body: what is left is what an open stream costs."""

    def _reply(self, request: pb.ProcessingRequest) -> pb.ProcessingResponse:
        if not request.HasField("request_headers") or request.request_headers.end_of_stream:
            return super()._reply(request)
        hold = pb.ProcessingResponse()
        hold.override_message_timeout.FromSeconds(600)
        return hold


async def serve(port: int, discovery_port: int, endpoint: Address, picker: NoOp) -> None:
    server = grpc.aio.server(options=OPTIONS)
    pb_grpc.add_ExternalProcessorServicer_to_server(picker, server)
    membership = Membership(1, (Member(endpoint),))
    endpoints = EndpointDiscovery(lambda: membership, lambda *_: None)
    endpoints.open()
    clusters = ClusterDiscovery(endpoints.gate)
    table: ServiceTable = {}
    health = Health()
    health.set_ready(True)
    for part in (endpoints, clusters, health):
        part.add_to(table)
    ServedCluster(Settings(), clusters.publish)
    server.add_insecure_port(f"127.0.0.1:{port}")
    discovery = Http2Server(table, time.monotonic)
    discovery.bind("127.0.0.1", discovery_port)
    await discovery.start()
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    chosen = Holding() if "--hold" in sys.argv else NoOp()
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), Address.parse(sys.argv[3]), chosen))
