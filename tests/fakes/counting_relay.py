"""A relay before a server that speaks HTTP/1.1, which counts the requests that are there at once.

A POST counts from its first line until the server has finished: it sent the headers of a response
of a known length, or the last chunk of another, or closed the connection. If a client leaves, the
server sees the end of the connection, and the request counts until the server closes it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from extproc.core.address import Address
from extproc.demo.port import free_port
from tests.fakes.listener import Listener


class CountingRelay:
    """`here` is the number of requests at the server, `most` the highest one, `taken` that of all
    since the beginning."""

    def __init__(self, server: str, port: int | None = None) -> None:
        """It listens at `port` of loopback, or at one that the kernel gives to nobody meanwhile."""
        self._server = Address.parse(server)
        self._port = port or free_port()
        self._listener = Listener(self._relay)
        self.here = self.most = self.taken = 0

    @property
    def address(self) -> str:
        """Always the same one."""
        return f"127.0.0.1:{self._port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[CountingRelay]:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        await self._listener.start(self._port)

    async def stop(self) -> None:
        """Its connections break off, and new ones are refused, as at a server that died."""
        await self._listener.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onward = await asyncio.open_connection(self._server.host, self._server.port)
        passing = _Passing(self)
        asking = asyncio.create_task(passing.requests(reader, onward))
        try:
            await passing.responses(there, writer)
        finally:
            passing.finished()
            onward.transport.abort()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


class _Passing:
    """One connection. Its requests come one by one, each after the response to the one before."""

    def __init__(self, relay: CountingRelay) -> None:
        self._relay = relay
        self._is_counted = False

    async def requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"POST "):
                    self._begun()
                writer.write(head)
                async for part in _body(head, reader, 0):
                    writer.write(part)
        writer.write_eof()

    async def responses(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the server ends them, whether the client is still there or not."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if _length(head) is not None:
                    self.finished()
                _pass_on(head, writer)
                async for part in _body(head, reader, None):
                    if part == b"0\r\n":
                        self.finished()
                    _pass_on(part, writer)

    def _begun(self) -> None:
        relay = self._relay
        self._is_counted = True
        relay.here += 1
        relay.taken += 1
        relay.most = max(relay.most, relay.here)

    def finished(self) -> None:
        self._relay.here -= self._is_counted
        self._is_counted = False


def _pass_on(data: bytes, writer: asyncio.StreamWriter) -> None:
    if not writer.is_closing():
        writer.write(data)


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found.lower() == name:
            return value.strip()
    return None


def _length(head: bytes) -> int | None:
    value = _header(head, b"content-length")
    return None if value is None else int(value)


async def _body(
    head: bytes, reader: asyncio.StreamReader, otherwise: int | None
) -> AsyncIterator[bytes]:
    """Its bytes as they come; `otherwise` is its length where the head does not say it, without
    one until the end of the connection."""
    length = _length(head)
    if _header(head, b"transfer-encoding") == b"chunked":
        size = 1
        while size:
            line = await reader.readuntil(b"\r\n")
            yield line
            size = int(line.partition(b";")[0], 16)
            yield await reader.readexactly(size + 2)
    elif length is not None or otherwise is not None:
        yield await reader.readexactly(length or otherwise or 0)
    else:
        while part := await reader.read(65_536):
            yield part
