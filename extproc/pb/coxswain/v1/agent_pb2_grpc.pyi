# mypy: disable-error-code=type-arg
from collections.abc import AsyncIterator, Awaitable

import grpc.aio
import extproc.pb.coxswain.v1.agent_pb2

class AgentsStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    Attach: grpc.aio.StreamStreamMultiCallable[extproc.pb.coxswain.v1.agent_pb2.AgentMessage, extproc.pb.coxswain.v1.agent_pb2.PickerMessage]

class AgentsServicer:
    def Attach(
        self, request_iterator: AsyncIterator[extproc.pb.coxswain.v1.agent_pb2.AgentMessage], context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.agent_pb2.AgentMessage, extproc.pb.coxswain.v1.agent_pb2.PickerMessage]
    ) -> AsyncIterator[extproc.pb.coxswain.v1.agent_pb2.PickerMessage] | Awaitable[None]: ...

def add_AgentsServicer_to_server(
    servicer: AgentsServicer, server: grpc.aio.Server
) -> None: ...
