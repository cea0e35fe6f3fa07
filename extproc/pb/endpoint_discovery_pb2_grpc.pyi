# mypy: disable-error-code=type-arg
from collections.abc import AsyncIterator, Awaitable

import grpc.aio
import extproc.pb.discovery_pb2

class EndpointDiscoveryServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    StreamEndpoints: grpc.aio.StreamStreamMultiCallable[extproc.pb.discovery_pb2.DiscoveryRequest, extproc.pb.discovery_pb2.DiscoveryResponse]

class EndpointDiscoveryServiceServicer:
    def StreamEndpoints(
        self, request_iterator: AsyncIterator[extproc.pb.discovery_pb2.DiscoveryRequest], context: grpc.aio.ServicerContext[extproc.pb.discovery_pb2.DiscoveryRequest, extproc.pb.discovery_pb2.DiscoveryResponse]
    ) -> AsyncIterator[extproc.pb.discovery_pb2.DiscoveryResponse] | Awaitable[None]: ...

def add_EndpointDiscoveryServiceServicer_to_server(
    servicer: EndpointDiscoveryServiceServicer, server: grpc.aio.Server
) -> None: ...
