"""A relay before a server, which keeps the beginning of what each connection says."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from extproc.core.address import Address

TLS_HANDSHAKE = 0x16


class Wiretap:
    """Use as `async with Wiretap(server.address) as tap`; `tap.address` is where to call."""

    def __init__(self, server: Address) -> None:
        self.target = server
        """Where new connections lead."""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.beginnings: list[bytes] = []
        self.address = server

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.break_connections()

    def break_connections(self) -> None:
        """As a network does that lost them."""
        for writer in list(self._writers):
            writer.transport.abort()

    @property
    def in_the_clear(self) -> list[bytes]:
        """What was said without TLS."""
        return [begun for begun in self.beginnings if begun[0] != TLS_HANDSHAKE]

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)  # at once: it can be broken while it leads nowhere yet
        try:
            first = await reader.read(4096)
            if first:
                self.beginnings.append(first)
                await self._lead_on(first, reader, writer)
        except ConnectionError:
            pass  # it was broken before it said anything
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _lead_on(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, back = await asyncio.open_connection(*self.target)
        self._writers.add(back)
        back.write(first)
        try:
            await asyncio.gather(_pour(reader, back), _pour(there, writer))
        finally:
            self._writers.discard(back)
            back.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
    writer.close()
