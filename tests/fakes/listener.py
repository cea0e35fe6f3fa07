"""Listening without leftovers: a listener's connections end before it is closed.

asyncio's own servers leave them open, and lose one that they accepted in the turn of the loop
in which they are closed: its client waits for an answer until the process ends.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

from extproc.core.address import Address

BACKLOG = 4096

TURNS_TO_ACCEPT = 3
"""So many turns of the loop asyncio takes to tell of a connection that it accepted."""

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """Talks on each connection until `talk` returns or its client leaves. Of one event loop."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._server: asyncio.Server | None = None
        self._talks: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def start(
        self, port: int = 0, tls: ssl.SSLContext | None = None, *, host: str = "127.0.0.1"
    ) -> Address:
        """Listen, at a free port where none is said; raises `OSError` when it is taken."""
        self._server = await asyncio.start_server(
            self._accept, host, port, ssl=tls, backlog=BACKLOG
        )
        return Address.of(*self._server.sockets[0].getsockname()[:2])

    async def close(self) -> None:
        """Refuse connections from now on, break those that are open, and wait for their ends."""
        if self._server is None:
            return
        server, self._server = self._server, None
        for listening in server.sockets:
            asyncio.get_running_loop().remove_reader(listening)
        for _ in range(TURNS_TO_ACCEPT):
            await asyncio.sleep(0)
        server.close()
        self.break_connections()
        for task in self._talks.values():
            task.cancel()
        await asyncio.gather(*self._talks.values(), return_exceptions=True)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._talks)

    async def had_no_connections(self) -> None:
        """Wait until every one is closed."""
        while self._talks:
            await asyncio.wait(self._talks.values())

    def break_connections(self) -> None:
        """As a killed process does, or a network that lost them; new ones are still taken."""
        for connection in self._talks:
            connection.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No coroutine, so that none that was accepted is unknown to `close`."""
        if self._server is None:
            writer.transport.abort()
        else:
            task = asyncio.create_task(self._serve(reader, writer))
            self._talks[writer] = task
            task.add_done_callback(lambda _: self._talks.pop(writer))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._talk(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
