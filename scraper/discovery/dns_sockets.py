"""The sockets of DNS queries, none of which outlives a query that is cancelled."""

import asyncio
import socket
from typing import Any

import dns.asyncbackend


class DnsSockets:
    """A backend of dnspython: its sockets on asyncio.

    uvloop keeps a datagram socket whose creation is cancelled, and its loop does not close before
    the socket does. Here it is created, then closed.
    """

    def __init__(self) -> None:
        self._sockets: Any = dns.asyncbackend.get_backend("asyncio")  # it is not typed

    def name(self) -> str:
        return str(self._sockets.name())

    def datagram_connection_required(self) -> bool:
        return bool(self._sockets.datagram_connection_required())

    async def make_socket(self, af: int, socktype: int, *more: Any, **named: Any) -> Any:
        """A socket of this family and type. Raises `OSError`."""
        making = asyncio.ensure_future(self._sockets.make_socket(af, socktype, *more, **named))
        if socktype != socket.SOCK_DGRAM:
            return await making
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            made = await making
            await made.close()
            raise

    async def sleep(self, interval: float) -> None:
        await self._sockets.sleep(interval)

    async def wait_for(self, awaitable: Any, timeout: float | None) -> Any:  # noqa: ASYNC109
        return await self._sockets.wait_for(awaitable, timeout)
