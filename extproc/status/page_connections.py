"""The connections of the pages' port: a bounded number, and a bounded time until the first request.

When there are as many as may be, the one that has been without a request for longest makes way: so
nobody keeps others out by holding connections. Streams of events are bounded on their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from aiohttp.web import RequestHandler

LOG_INTERVAL_S: Final = 60.0

log = logging.getLogger("coxswain.status")


class PageConnections:
    """Belongs to one event loop. `serve` makes what reads and answers the requests of one."""

    def __init__(self, most: int, headers_s: float, serve: Callable[[], RequestHandler]) -> None:
        self._most = most
        self._headers_s = headers_s
        self._serve = serve
        self._open: dict[asyncio.Protocol, _Connection] = {}
        """By what serves them, those without a request for longest first."""
        self._logged_at = float("-inf")

    def __len__(self) -> int:
        return len(self._open)

    def accept(self) -> asyncio.Protocol:
        """For one more connection."""
        return _Connection(self, self._serve(), self._headers_s)

    def begins(self, handler: asyncio.Protocol) -> None:
        """A request has come."""
        if connection := self._open.get(handler):
            connection.begins()

    def ends(self, handler: asyncio.Protocol) -> None:
        """And was answered."""
        if connection := self._open.pop(handler, None):
            connection.is_asked = False
            self._open[handler] = connection

    def opened(self, connection: _Connection) -> None:
        """One more is open. Another one makes way for it if there are too many."""
        self._open[connection.handler] = connection
        if len(self._open) <= self._most:
            return
        waiting = (each for each in self._open.values() if not each.is_asked)
        next(waiting, connection).abort()
        now = asyncio.get_running_loop().time()
        if now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            log.warning(
                "the pages have %d connections, which is the limit: those without a request for "
                "longest are closed",
                self._most,
            )

    def closed(self, connection: _Connection) -> None:
        self._open.pop(connection.handler, None)


class _Connection(asyncio.Protocol):
    """One connection; all that comes goes on to its handler."""

    def __init__(
        self, connections: PageConnections, handler: RequestHandler, headers_s: float
    ) -> None:
        self.handler = cast("asyncio.Protocol", handler)
        self.is_asked = False
        self._connections = connections
        self._headers_s = headers_s
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begins(self) -> None:
        """A request has come: the time for the first one is over."""
        self.is_asked = True
        if self._timer is not None:
            self._timer.cancel()

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
        self._connections.opened(self)

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
