"""Listens on a port, or explains why it cannot."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from extproc.app.security import exposure
from extproc.settings import Settings
from extproc.settings.values import split_host_port
from extproc.transport import ServiceTable
from extproc.transport.acceptor import listen
from extproc.transport.descriptors import DATA_PLANE, connections
from extproc.transport.http2_server import Http2Server
from extproc.transport.limits import MESSAGE_BYTES, TransportLimits

if TYPE_CHECKING:
    import grpc

MESSAGE_MARGIN_BYTES = 1 << 20
"""What a message has besides a body."""


class ListenError(OSError):
    """Listening failed; `str(error)` says on which port and what to do."""


def bind(
    server: grpc.aio.Server,
    address: str,
    setting: str,
    credentials: grpc.ServerCredentials | None = None,
) -> int:
    """Let `server` listen on `address`, named by `setting`; returns the port it got.

    Raises `ListenError`.
    """
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError:
        raise _cannot_listen(address, setting) from None


def _cannot_listen(address: str, setting: str) -> ListenError:
    return ListenError(
        f"cannot listen on {address}: check whether it is in use, or change {setting}"
    )


class DataPlaneServer(Protocol):
    """The server of the data plane's port: HTTP/2, or a core's fronts."""

    async def start(self) -> None: ...

    async def stop(self, grace_s: float) -> None: ...


DataPlane: TypeAlias = Callable[[Settings, ServiceTable], tuple[DataPlaneServer, int]]
"""Makes a server that listens but does not accept yet, and names its port."""


def data_plane_server(settings: Settings, table: ServiceTable) -> tuple[DataPlaneServer, int]:
    """A server for Envoy that listens but does not accept yet, and its port.

    Raises `ListenError`, and `SettingsError` for certificates that cannot be used.
    """
    return bound_server(settings, table, settings.listen.grpc, "listen.grpc")


def bound_server(
    settings: Settings, table: ServiceTable, address: str, setting: str
) -> tuple[Http2Server, int]:
    """A server for Envoy that listens on `address`, named by `setting`, but does not accept yet,
    and its port.

    Raises `ListenError`, and `SettingsError` for certificates that cannot be used.
    """
    server = http2_server(settings, table)
    try:
        return server, server.bind(*split_host_port(address))
    except OSError:
        raise _cannot_listen(address, setting) from None


def http2_server(settings: Settings, table: ServiceTable) -> Http2Server:
    """A server for Envoy that does not listen yet. Raises `SettingsError` for certificates that
    cannot be used."""
    certificates = exposure.data_plane_certificates(settings)
    body_bytes = settings.envoy.body_buffer_bytes + MESSAGE_MARGIN_BYTES
    limits = TransportLimits(
        message_bytes=max(body_bytes, MESSAGE_BYTES), connections=connections(DATA_PLANE)
    )
    tls = None if certificates is None else certificates.context
    return Http2Server(table, time.monotonic, limits, tls)


def listening_sockets(address: str, setting: str) -> tuple[list[socket.socket], int]:
    """Sockets that listen on `address`, named by `setting`, not blocking, and their port. Raises
    `ListenError`."""
    try:
        found = listen(*split_host_port(address))
    except OSError:
        raise _cannot_listen(address, setting) from None
    return found, int(found[0].getsockname()[1])
