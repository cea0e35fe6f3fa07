"""A port on which grpcio serves: for operators and agents, and for KEDA, which sends no token."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import grpc

from extproc.admin import add_reflection
from extproc.admin.health import add_health
from extproc.app.ports import bind
from extproc.transport.descriptors import HEADERS_S, connections
from extproc.transport.health import SERVICE as HEALTH_SERVICE
from extproc.transport.health import Health

ADMIN_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 2 * 1024 * 1024),
)
KEDA_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 64 * 1024),
    ("grpc.max_concurrent_streams", 2000),
)
STOP_GRACE_S: Final = 0.2
IDLE_MS: Final = 120_000
"""A connection without a call ends after it."""


class Part(Protocol):
    """A service of gRPC."""

    def add_to(self, server: grpc.aio.Server) -> None: ...


class GrpcPort:
    """Built with the service, started after it, stopped before it. Serves `parts`, by the names of
    their services, and with them health and reflection."""

    def __init__(
        self,
        parts: Mapping[str, Part],
        health: Health,
        options: Sequence[tuple[str, int]],
        share: tuple[int, int],
    ) -> None:
        """`share` of the descriptors its connections may take."""
        self._parts = parts
        self._health = health
        self._options = options
        self._share = share
        self._server: grpc.aio.Server | None = None

    async def start(
        self,
        address: str,
        setting: str,
        credentials: grpc.ServerCredentials | None,
        interceptors: Sequence[Any] = (),
    ) -> int:
        """Serve at `address`, named by `setting`; returns the port. Raises `ListenError`."""
        options = (
            *self._options,
            ("grpc.max_allowed_incoming_connections", connections(self._share)),
            ("grpc.server_handshake_timeout_ms", int(HEADERS_S * 1000)),
            ("grpc.max_connection_idle_ms", IDLE_MS),
        )
        self._server = grpc.aio.server(options=options, interceptors=interceptors)
        for part in self._parts.values():
            part.add_to(self._server)
        add_health(self._server, self._health)
        add_reflection(self._server, (*self._parts, HEALTH_SERVICE))
        port = bind(self._server, address, setting, credentials)
        await self._server.start()
        return port

    async def stop(self) -> None:
        """End all calls and stop."""
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
