# mypy: disable-error-code=type-arg
from collections.abc import AsyncIterator, Awaitable

import grpc.aio
import extproc.pb.access_log_service_pb2

class AccessLogServiceStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    StreamAccessLogs: grpc.aio.StreamUnaryMultiCallable[extproc.pb.access_log_service_pb2.StreamAccessLogsMessage, extproc.pb.access_log_service_pb2.StreamAccessLogsResponse]

class AccessLogServiceServicer:
    def StreamAccessLogs(
        self, request_iterator: AsyncIterator[extproc.pb.access_log_service_pb2.StreamAccessLogsMessage], context: grpc.aio.ServicerContext[extproc.pb.access_log_service_pb2.StreamAccessLogsMessage, extproc.pb.access_log_service_pb2.StreamAccessLogsResponse]
    ) -> Awaitable[extproc.pb.access_log_service_pb2.StreamAccessLogsResponse]: ...

def add_AccessLogServiceServicer_to_server(
    servicer: AccessLogServiceServicer, server: grpc.aio.Server
) -> None: ...
