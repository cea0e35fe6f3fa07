"""The data plane's port: our own HTTP/2 and gRPC on asyncio."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from extproc.transport.acceptor import BACKLOG, listen
from extproc.transport.call import ServiceTable
from extproc.transport.limits import TransportLimits
from extproc.transport.protocol import Connections, Http2Protocol

HANDSHAKE_S: Final = 10.0
CLOSE_S: Final = 1.0

log = logging.getLogger("coxswain.transport")


class Http2Server:
    """Serves the methods of `table`. `tls` returns the context for the next connection; without it
    connections are plain. Belongs to one event loop."""

    def __init__(
        self,
        table: ServiceTable,
        clock: Callable[[], float],
        limits: TransportLimits | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._servers: list[asyncio.Server] = []
        self._connections = Connections(table, limits or TransportLimits(), clock)

    def bind(self, host: str, port: int) -> int:
        """Listen on all addresses of `host`; returns the port. Raises `OSError`."""
        self._sockets = listen(host, port)
        return int(self._sockets[0].getsockname()[1])

    async def serve(self, connection: socket.socket) -> None:
        """Serve a connection that was accepted elsewhere. Raises `OSError` if it is gone."""
        context = self._context()
        await asyncio.get_running_loop().connect_accepted_socket(
            self._accept,
            connection,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
        )

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections.open)

    def leave(self) -> None:
        """Ask every client to open its next calls elsewhere; running ones go on."""
        for each in list(self._connections.open):
            each.leave()

    async def start(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        context = self._context()
        while self._sockets:
            listening = self._sockets.pop()
            server = await loop.create_server(
                self._accept,
                sock=listening,
                backlog=BACKLOG,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
            )
            self._servers.append(server)

    async def stop(self, grace_s: float) -> None:
        """Accept no more, let calls end within `grace_s`, then cut them off."""
        for server in self._servers:
            server.close()
        self._close_sockets()
        self.leave()
        await self._until_closed(grace_s)
        for each in list(self._connections.open):
            each.abort()
        await self._until_closed(CLOSE_S)

    async def _until_closed(self, timeout_s: float) -> None:
        connections = self._connections
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while connections.open:
                    connections.one_ended.clear()
                    await connections.one_ended.wait()

    def _accept(self) -> asyncio.Protocol:
        return cast("asyncio.Protocol", Http2Protocol(self._connections))

    def _context(self) -> ssl.SSLContext | None:
        """A context that looks for new certificates at each handshake. OpenSSL calls what is meant
        for server names then, also for clients that send none, and takes over the certificates
        and the CAs of the context that is set there."""
        tls = self._tls
        if tls is None:
            return None

        def renew(handshake: ssl.SSLObject | ssl.SSLSocket, *_: object) -> None:
            handshake.context = tls()

        context = tls()
        context.sni_callback = renew
        return context

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()
