# mypy: disable-error-code=type-arg
from collections.abc import AsyncIterator, Awaitable

import grpc.aio
import extproc.pb.coxswain.v1.keeper_pb2

class KeepersStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    Attach: grpc.aio.StreamStreamMultiCallable[extproc.pb.coxswain.v1.keeper_pb2.KeeperMessage, extproc.pb.coxswain.v1.keeper_pb2.KeeperCommand]

class KeepersServicer:
    def Attach(
        self, request_iterator: AsyncIterator[extproc.pb.coxswain.v1.keeper_pb2.KeeperMessage], context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.keeper_pb2.KeeperMessage, extproc.pb.coxswain.v1.keeper_pb2.KeeperCommand]
    ) -> AsyncIterator[extproc.pb.coxswain.v1.keeper_pb2.KeeperCommand] | Awaitable[None]: ...

def add_KeepersServicer_to_server(
    servicer: KeepersServicer, server: grpc.aio.Server
) -> None: ...
