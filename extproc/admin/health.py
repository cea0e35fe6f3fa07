"""The health service on the ports that grpcio serves; Envoy's port has its own."""

import asyncio
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from extproc.transport.health import Health

UNKNOWN: Final = pb.HealthCheckResponse.SERVICE_UNKNOWN


def add_health(server: grpc.aio.Server, health: Health) -> None:
    """Serve the health service on a server of grpcio."""
    health_pb2_grpc.add_HealthServicer_to_server(_HealthService(health), server)


class _HealthService(health_pb2_grpc.HealthServicer):
    def __init__(self, health: Health) -> None:
        self._health = health

    async def Check(self, request: pb.HealthCheckRequest, context: Any) -> Any:  # noqa: N802 (gRPC)
        status = self._health.status_of(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no service of that name")
        return pb.HealthCheckResponse(status=status)

    async def Watch(self, request: pb.HealthCheckRequest, context: Any) -> None:  # noqa: N802
        changed = asyncio.Event()
        self._health.begin_watch(changed.set)
        reported = None
        try:
            while True:
                changed.clear()
                status = self._health.status_of(request.service)
                status = UNKNOWN if status is None else status
                if status != reported:
                    reported = status
                    await context.write(pb.HealthCheckResponse(status=status))
                await changed.wait()
        finally:
            self._health.end_watch(changed.set)
