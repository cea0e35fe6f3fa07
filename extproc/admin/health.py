"""gRPC health under the names that Envoy, Kubernetes and llm-d use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

if TYPE_CHECKING:
    import grpc

LIVENESS: Final = "liveness"
READINESS: Final = ("", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor")
SERVICE: Final = health.SERVICE_NAME

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """One state for every port: alive as long as it answers, ready while it takes requests."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Add the service to this server."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def set_ready(self, is_ready: bool) -> None:
        """Tell everybody who asks or watches; alive it is in any case."""
        await self._servicer.set(LIVENESS, _SERVING)
        for name in READINESS:
            await self._servicer.set(name, _SERVING if is_ready else _NOT_SERVING)
