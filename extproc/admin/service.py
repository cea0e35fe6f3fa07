"""The admin service as a whole: its calls are in a module for each subject."""

from typing import Final

import grpc

from extproc.admin.calls.endpoints import EndpointCalls
from extproc.admin.calls.explain import ExplainCalls
from extproc.admin.calls.fleet import FleetCalls
from extproc.admin.calls.models import ModelCalls
from extproc.admin.calls.records import RecordCalls
from extproc.admin.calls.requests import RequestCalls
from extproc.admin.calls.scale import ScaleCalls
from extproc.admin.calls.status import StatusCalls
from extproc.admin.calls.usage import UsageCalls
from extproc.admin.calls.watch import WatchCalls
from extproc.admin.handlers import handlers_of
from extproc.pb.coxswain.v1 import admin_pb2 as pb

DESCRIPTOR: Final = pb.DESCRIPTOR.services_by_name["Admin"]
SERVICE: Final[str] = DESCRIPTOR.full_name


class AdminService(
    EndpointCalls,
    WatchCalls,
    FleetCalls,
    RequestCalls,
    RecordCalls,
    ExplainCalls,
    StatusCalls,
    ModelCalls,
    ScaleCalls,
    UsageCalls,
):
    """`coxswain.v1.Admin`. Each call is answered on the event loop and never blocks it long."""

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add the service to this server."""
        server.add_generic_rpc_handlers((handlers_of(DESCRIPTOR, self),))
