# mypy: disable-error-code=type-arg
from collections.abc import AsyncIterator, Awaitable

import grpc.aio
import extproc.pb.externalscaler_pb2

class ExternalScalerStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    IsActive: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.externalscaler_pb2.ScaledObjectRef, extproc.pb.externalscaler_pb2.IsActiveResponse]
    StreamIsActive: grpc.aio.UnaryStreamMultiCallable[extproc.pb.externalscaler_pb2.ScaledObjectRef, extproc.pb.externalscaler_pb2.IsActiveResponse]
    GetMetricSpec: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.externalscaler_pb2.ScaledObjectRef, extproc.pb.externalscaler_pb2.GetMetricSpecResponse]
    GetMetrics: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.externalscaler_pb2.GetMetricsRequest, extproc.pb.externalscaler_pb2.GetMetricsResponse]
    StreamMetricSpec: grpc.aio.UnaryStreamMultiCallable[extproc.pb.externalscaler_pb2.ScaledObjectRef, extproc.pb.externalscaler_pb2.GetMetricSpecResponse]

class ExternalScalerServicer:
    def IsActive(
        self, request: extproc.pb.externalscaler_pb2.ScaledObjectRef, context: grpc.aio.ServicerContext[extproc.pb.externalscaler_pb2.ScaledObjectRef, extproc.pb.externalscaler_pb2.IsActiveResponse]
    ) -> Awaitable[extproc.pb.externalscaler_pb2.IsActiveResponse]: ...
    def StreamIsActive(
        self, request: extproc.pb.externalscaler_pb2.ScaledObjectRef, context: grpc.aio.ServicerContext[extproc.pb.externalscaler_pb2.ScaledObjectRef, extproc.pb.externalscaler_pb2.IsActiveResponse]
    ) -> AsyncIterator[extproc.pb.externalscaler_pb2.IsActiveResponse] | Awaitable[None]: ...
    def GetMetricSpec(
        self, request: extproc.pb.externalscaler_pb2.ScaledObjectRef, context: grpc.aio.ServicerContext[extproc.pb.externalscaler_pb2.ScaledObjectRef, extproc.pb.externalscaler_pb2.GetMetricSpecResponse]
    ) -> Awaitable[extproc.pb.externalscaler_pb2.GetMetricSpecResponse]: ...
    def GetMetrics(
        self, request: extproc.pb.externalscaler_pb2.GetMetricsRequest, context: grpc.aio.ServicerContext[extproc.pb.externalscaler_pb2.GetMetricsRequest, extproc.pb.externalscaler_pb2.GetMetricsResponse]
    ) -> Awaitable[extproc.pb.externalscaler_pb2.GetMetricsResponse]: ...
    def StreamMetricSpec(
        self, request: extproc.pb.externalscaler_pb2.ScaledObjectRef, context: grpc.aio.ServicerContext[extproc.pb.externalscaler_pb2.ScaledObjectRef, extproc.pb.externalscaler_pb2.GetMetricSpecResponse]
    ) -> AsyncIterator[extproc.pb.externalscaler_pb2.GetMetricSpecResponse] | Awaitable[None]: ...

def add_ExternalScalerServicer_to_server(
    servicer: ExternalScalerServicer, server: grpc.aio.Server
) -> None: ...
