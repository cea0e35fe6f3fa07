# mypy: disable-error-code=type-arg
from collections.abc import AsyncIterator, Awaitable

import grpc.aio
import extproc.pb.discovery_pb2

class ClusterDiscoveryServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    StreamClusters: grpc.aio.StreamStreamMultiCallable[extproc.pb.discovery_pb2.DiscoveryRequest, extproc.pb.discovery_pb2.DiscoveryResponse]

class ClusterDiscoveryServiceServicer:
    def StreamClusters(
        self, request_iterator: AsyncIterator[extproc.pb.discovery_pb2.DiscoveryRequest], context: grpc.aio.ServicerContext[extproc.pb.discovery_pb2.DiscoveryRequest, extproc.pb.discovery_pb2.DiscoveryResponse]
    ) -> AsyncIterator[extproc.pb.discovery_pb2.DiscoveryResponse] | Awaitable[None]: ...

def add_ClusterDiscoveryServiceServicer_to_server(
    servicer: ClusterDiscoveryServiceServicer, server: grpc.aio.Server
) -> None: ...
