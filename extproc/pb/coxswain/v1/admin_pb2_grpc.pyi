# mypy: disable-error-code=type-arg
from collections.abc import AsyncIterator, Awaitable

import grpc.aio
import extproc.pb.coxswain.v1.admin_pb2

class AdminStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    ListEndpoints: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ListEndpointsRequest, extproc.pb.coxswain.v1.admin_pb2.ListEndpointsResponse]
    WatchEndpoints: grpc.aio.UnaryStreamMultiCallable[extproc.pb.coxswain.v1.admin_pb2.WatchEndpointsRequest, extproc.pb.coxswain.v1.admin_pb2.WatchEndpointsResponse]
    WatchFleet: grpc.aio.UnaryStreamMultiCallable[extproc.pb.coxswain.v1.admin_pb2.WatchFleetRequest, extproc.pb.coxswain.v1.admin_pb2.WatchFleetResponse]
    AddEndpoint: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.AddEndpointRequest, extproc.pb.coxswain.v1.admin_pb2.AddEndpointResponse]
    RemoveEndpoint: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.RemoveEndpointRequest, extproc.pb.coxswain.v1.admin_pb2.RemoveEndpointResponse]
    Drain: grpc.aio.UnaryStreamMultiCallable[extproc.pb.coxswain.v1.admin_pb2.DrainRequest, extproc.pb.coxswain.v1.admin_pb2.DrainResponse]
    Activate: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ActivateRequest, extproc.pb.coxswain.v1.admin_pb2.ActivateResponse]
    Disable: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.DisableRequest, extproc.pb.coxswain.v1.admin_pb2.DisableResponse]
    ListRequests: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ListRequestsRequest, extproc.pb.coxswain.v1.admin_pb2.ListRequestsResponse]
    WatchQueue: grpc.aio.UnaryStreamMultiCallable[extproc.pb.coxswain.v1.admin_pb2.WatchQueueRequest, extproc.pb.coxswain.v1.admin_pb2.WatchQueueResponse]
    CancelRequest: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.CancelRequestRequest, extproc.pb.coxswain.v1.admin_pb2.CancelRequestResponse]
    ListRecords: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ListRecordsRequest, extproc.pb.coxswain.v1.admin_pb2.ListRecordsResponse]
    ShowRequest: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ShowRequestRequest, extproc.pb.coxswain.v1.admin_pb2.ShowRequestResponse]
    ListEvents: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ListEventsRequest, extproc.pb.coxswain.v1.admin_pb2.ListEventsResponse]
    Explain: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ExplainRequest, extproc.pb.coxswain.v1.admin_pb2.ExplainResponse]
    ListUsage: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ListUsageRequest, extproc.pb.coxswain.v1.admin_pb2.ListUsageResponse]
    GetSettings: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.GetSettingsRequest, extproc.pb.coxswain.v1.admin_pb2.GetSettingsResponse]
    ReloadSettings: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ReloadSettingsRequest, extproc.pb.coxswain.v1.admin_pb2.ReloadSettingsResponse]
    ListScale: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ListScaleRequest, extproc.pb.coxswain.v1.admin_pb2.ListScaleResponse]
    GetStatus: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.GetStatusRequest, extproc.pb.coxswain.v1.admin_pb2.GetStatusResponse]
    ListModels: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ListModelsRequest, extproc.pb.coxswain.v1.admin_pb2.ListModelsResponse]
    LoadModel: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.LoadModelRequest, extproc.pb.coxswain.v1.admin_pb2.LoadModelResponse]
    UnloadModel: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.UnloadModelRequest, extproc.pb.coxswain.v1.admin_pb2.UnloadModelResponse]
    UnpinModel: grpc.aio.UnaryUnaryMultiCallable[extproc.pb.coxswain.v1.admin_pb2.UnpinModelRequest, extproc.pb.coxswain.v1.admin_pb2.UnpinModelResponse]
    ReplaceModel: grpc.aio.UnaryStreamMultiCallable[extproc.pb.coxswain.v1.admin_pb2.ReplaceModelRequest, extproc.pb.coxswain.v1.admin_pb2.ReplaceModelResponse]
    WatchLog: grpc.aio.UnaryStreamMultiCallable[extproc.pb.coxswain.v1.admin_pb2.WatchLogRequest, extproc.pb.coxswain.v1.admin_pb2.WatchLogResponse]

class AdminServicer:
    def ListEndpoints(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ListEndpointsRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ListEndpointsRequest, extproc.pb.coxswain.v1.admin_pb2.ListEndpointsResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ListEndpointsResponse]: ...
    def WatchEndpoints(
        self, request: extproc.pb.coxswain.v1.admin_pb2.WatchEndpointsRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.WatchEndpointsRequest, extproc.pb.coxswain.v1.admin_pb2.WatchEndpointsResponse]
    ) -> AsyncIterator[extproc.pb.coxswain.v1.admin_pb2.WatchEndpointsResponse] | Awaitable[None]: ...
    def WatchFleet(
        self, request: extproc.pb.coxswain.v1.admin_pb2.WatchFleetRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.WatchFleetRequest, extproc.pb.coxswain.v1.admin_pb2.WatchFleetResponse]
    ) -> AsyncIterator[extproc.pb.coxswain.v1.admin_pb2.WatchFleetResponse] | Awaitable[None]: ...
    def AddEndpoint(
        self, request: extproc.pb.coxswain.v1.admin_pb2.AddEndpointRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.AddEndpointRequest, extproc.pb.coxswain.v1.admin_pb2.AddEndpointResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.AddEndpointResponse]: ...
    def RemoveEndpoint(
        self, request: extproc.pb.coxswain.v1.admin_pb2.RemoveEndpointRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.RemoveEndpointRequest, extproc.pb.coxswain.v1.admin_pb2.RemoveEndpointResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.RemoveEndpointResponse]: ...
    def Drain(
        self, request: extproc.pb.coxswain.v1.admin_pb2.DrainRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.DrainRequest, extproc.pb.coxswain.v1.admin_pb2.DrainResponse]
    ) -> AsyncIterator[extproc.pb.coxswain.v1.admin_pb2.DrainResponse] | Awaitable[None]: ...
    def Activate(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ActivateRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ActivateRequest, extproc.pb.coxswain.v1.admin_pb2.ActivateResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ActivateResponse]: ...
    def Disable(
        self, request: extproc.pb.coxswain.v1.admin_pb2.DisableRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.DisableRequest, extproc.pb.coxswain.v1.admin_pb2.DisableResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.DisableResponse]: ...
    def ListRequests(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ListRequestsRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ListRequestsRequest, extproc.pb.coxswain.v1.admin_pb2.ListRequestsResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ListRequestsResponse]: ...
    def WatchQueue(
        self, request: extproc.pb.coxswain.v1.admin_pb2.WatchQueueRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.WatchQueueRequest, extproc.pb.coxswain.v1.admin_pb2.WatchQueueResponse]
    ) -> AsyncIterator[extproc.pb.coxswain.v1.admin_pb2.WatchQueueResponse] | Awaitable[None]: ...
    def CancelRequest(
        self, request: extproc.pb.coxswain.v1.admin_pb2.CancelRequestRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.CancelRequestRequest, extproc.pb.coxswain.v1.admin_pb2.CancelRequestResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.CancelRequestResponse]: ...
    def ListRecords(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ListRecordsRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ListRecordsRequest, extproc.pb.coxswain.v1.admin_pb2.ListRecordsResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ListRecordsResponse]: ...
    def ShowRequest(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ShowRequestRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ShowRequestRequest, extproc.pb.coxswain.v1.admin_pb2.ShowRequestResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ShowRequestResponse]: ...
    def ListEvents(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ListEventsRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ListEventsRequest, extproc.pb.coxswain.v1.admin_pb2.ListEventsResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ListEventsResponse]: ...
    def Explain(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ExplainRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ExplainRequest, extproc.pb.coxswain.v1.admin_pb2.ExplainResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ExplainResponse]: ...
    def ListUsage(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ListUsageRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ListUsageRequest, extproc.pb.coxswain.v1.admin_pb2.ListUsageResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ListUsageResponse]: ...
    def GetSettings(
        self, request: extproc.pb.coxswain.v1.admin_pb2.GetSettingsRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.GetSettingsRequest, extproc.pb.coxswain.v1.admin_pb2.GetSettingsResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.GetSettingsResponse]: ...
    def ReloadSettings(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ReloadSettingsRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ReloadSettingsRequest, extproc.pb.coxswain.v1.admin_pb2.ReloadSettingsResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ReloadSettingsResponse]: ...
    def ListScale(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ListScaleRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ListScaleRequest, extproc.pb.coxswain.v1.admin_pb2.ListScaleResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ListScaleResponse]: ...
    def GetStatus(
        self, request: extproc.pb.coxswain.v1.admin_pb2.GetStatusRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.GetStatusRequest, extproc.pb.coxswain.v1.admin_pb2.GetStatusResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.GetStatusResponse]: ...
    def ListModels(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ListModelsRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ListModelsRequest, extproc.pb.coxswain.v1.admin_pb2.ListModelsResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.ListModelsResponse]: ...
    def LoadModel(
        self, request: extproc.pb.coxswain.v1.admin_pb2.LoadModelRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.LoadModelRequest, extproc.pb.coxswain.v1.admin_pb2.LoadModelResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.LoadModelResponse]: ...
    def UnloadModel(
        self, request: extproc.pb.coxswain.v1.admin_pb2.UnloadModelRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.UnloadModelRequest, extproc.pb.coxswain.v1.admin_pb2.UnloadModelResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.UnloadModelResponse]: ...
    def UnpinModel(
        self, request: extproc.pb.coxswain.v1.admin_pb2.UnpinModelRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.UnpinModelRequest, extproc.pb.coxswain.v1.admin_pb2.UnpinModelResponse]
    ) -> Awaitable[extproc.pb.coxswain.v1.admin_pb2.UnpinModelResponse]: ...
    def ReplaceModel(
        self, request: extproc.pb.coxswain.v1.admin_pb2.ReplaceModelRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.ReplaceModelRequest, extproc.pb.coxswain.v1.admin_pb2.ReplaceModelResponse]
    ) -> AsyncIterator[extproc.pb.coxswain.v1.admin_pb2.ReplaceModelResponse] | Awaitable[None]: ...
    def WatchLog(
        self, request: extproc.pb.coxswain.v1.admin_pb2.WatchLogRequest, context: grpc.aio.ServicerContext[extproc.pb.coxswain.v1.admin_pb2.WatchLogRequest, extproc.pb.coxswain.v1.admin_pb2.WatchLogResponse]
    ) -> AsyncIterator[extproc.pb.coxswain.v1.admin_pb2.WatchLogResponse] | Awaitable[None]: ...

def add_AdminServicer_to_server(
    servicer: AdminServicer, server: grpc.aio.Server
) -> None: ...
