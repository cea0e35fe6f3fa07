"""A port of an aiohttp application, and its connections: a bounded number, and a bounded time until
the first request.

When there are as many as may be, the one that has been without a request for longest makes way: so
nobody keeps others out by holding connections. A new one is spared for a moment, in which others
wait in the kernel: Envoy opens hundreds before it sends the first request. Streams of events are
bounded on their own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web

from extproc.transport.acceptor import Acceptor, listen
from extproc.transport.descriptors import HEADERS_S, connections

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

LOG_INTERVAL_S: Final = 60.0
SPARED_S: Final = 0.25
"""How long a new connection, and one that was just answered, need not make way."""

log = logging.getLogger("coxswain.service")


class HttpPort:
    """Serves an application from `start` to `stop`; `name` says in logs whose port it is, and
    `share` what part of the descriptors its connections may take, and how many at most."""

    def __init__(
        self, app: web.Application, name: str, share: tuple[int, int], shutdown_s: float
    ) -> None:
        """Before the application has started. `shutdown_s` is the longest time to finish answers
        at the end."""
        app.middlewares.insert(0, self._accounted)
        self._name = name
        self._share = share
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=shutdown_s
        )
        self._connections: _Connections | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (`port` 0 takes a free one); raises `OSError`."""
        await self._runner.setup()
        assert self._runner.server is not None
        try:
            listeners = listen(host, port)
        except OSError:
            await self._runner.cleanup()
            raise
        self._connections = _Connections(
            self._name, connections(self._share), HEADERS_S, self._runner.server
        )
        self._connections.accept_from(listeners)
        return int(listeners[0].getsockname()[1])

    async def stop(self) -> None:
        """Close all connections; a port that was not opened is no error."""
        if self._connections is not None:
            self._connections.close()
        await self._runner.cleanup()

    @web.middleware
    async def _accounted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        assert self._connections is not None
        self._connections.begins(request.protocol)
        try:
            return await handler(request)
        finally:
            self._connections.ends(request.protocol)


class _Connections:
    """Belongs to one event loop. `serve` makes what reads and answers the requests of one."""

    def __init__(
        self, name: str, most: int, headers_s: float, serve: Callable[[], web.RequestHandler]
    ) -> None:
        self._name = name
        self._most = most
        self._headers_s = headers_s
        self._serve = serve
        self._open: dict[asyncio.Protocol, _Connection] = {}
        """By what serves them, those without a request for longest first."""
        self._logged_at = float("-inf")
        self._acceptor: Acceptor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def accept_from(self, listeners: Sequence[socket.socket]) -> None:
        """Serve what connects to these, until `close`, which closes them."""
        self._acceptor = Acceptor(listeners, self._take)
        self._acceptor.accept(True)

    def close(self) -> None:
        """Accept no more; those that are open stay."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

    def begins(self, handler: asyncio.Protocol) -> None:
        """A request has come."""
        if connection := self._open.get(handler):
            connection.begins()

    def ends(self, handler: asyncio.Protocol) -> None:
        """And was answered."""
        if connection := self._open.pop(handler, None):
            connection.ends()
            self._open[handler] = connection

    def closed(self, connection: _Connection) -> None:
        if self._open.pop(connection.handler, None):
            self._make_room()

    def _take(self, accepted: socket.socket) -> None:
        connection = _Connection(self, self._serve(), self._headers_s)
        self._open[connection.handler] = connection
        task = asyncio.get_running_loop().create_task(self._connect(connection, accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._make_room()

    async def _connect(self, connection: _Connection, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, accepted)
        except OSError:  # it is gone
            self.closed(connection)

    def _make_room(self) -> None:
        """Accept further connections only while there are not too many, or one can make way."""
        if self._acceptor is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        if len(self._open) <= self._most:
            self._acceptor.accept(True)
            return
        now = loop.time()
        idle = (each for each in self._open.values() if each.may_make_way(now))
        if (longest := next(idle, None)) is not None:
            self._log_limit(now)
            longest.abort()  # which leads here again
            return
        self._acceptor.accept(False)
        self._timer = loop.call_later(SPARED_S, self._make_room)

    def _log_limit(self, now: float) -> None:
        if now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            log.warning(
                "%s have %d connections, which is the limit: those without a request for longest "
                "are closed",
                self._name,
                self._most,
            )


class _Connection(asyncio.Protocol):
    """One connection; all that comes goes on to its handler."""

    def __init__(
        self, connections: _Connections, handler: web.RequestHandler, headers_s: float
    ) -> None:
        self.handler = cast("asyncio.Protocol", handler)
        self._is_asked = False
        self._connections = connections
        self._headers_s = headers_s
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._spare()

    def begins(self) -> None:
        """A request has come: the time for the first one is over."""
        self._is_asked = True
        if self._timer is not None:
            self._timer.cancel()

    def ends(self) -> None:
        """It was answered: the answer is still to be written."""
        self._is_asked = False
        self._spare()

    def _spare(self) -> None:
        self._spared_until = asyncio.get_running_loop().time() + SPARED_S

    def may_make_way(self, now: float) -> bool:
        """Whether it has no request, and had its time to send one or to take the last answer."""
        return not self._is_asked and now >= self._spared_until

    def abort(self) -> None:
        """Close it at once, and count it no more."""
        self._connections.closed(self)
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(self._headers_s, self.abort)
        self.handler.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._connections.closed(self)
        self.handler.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self.handler.eof_received()

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()
