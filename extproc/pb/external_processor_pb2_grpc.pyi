# mypy: disable-error-code=type-arg
from collections.abc import AsyncIterator, Awaitable

import grpc.aio
import extproc.pb.external_processor_pb2

class ExternalProcessorStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    Process: grpc.aio.StreamStreamMultiCallable[extproc.pb.external_processor_pb2.ProcessingRequest, extproc.pb.external_processor_pb2.ProcessingResponse]

class ExternalProcessorServicer:
    def Process(
        self, request_iterator: AsyncIterator[extproc.pb.external_processor_pb2.ProcessingRequest], context: grpc.aio.ServicerContext[extproc.pb.external_processor_pb2.ProcessingRequest, extproc.pb.external_processor_pb2.ProcessingResponse]
    ) -> AsyncIterator[extproc.pb.external_processor_pb2.ProcessingResponse] | Awaitable[None]: ...

def add_ExternalProcessorServicer_to_server(
    servicer: ExternalProcessorServicer, server: grpc.aio.Server
) -> None: ...
