"""A relay before a server, which keeps the beginning of what each connection says."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from extproc.core.address import Address
from tests.fakes.listener import Listener

TLS_HANDSHAKE = 0x16


class Wiretap:
    """Use as `async with Wiretap(server.address) as tap`; `tap.address` is where to call."""

    def __init__(self, server: Address) -> None:
        self.target = server
        """Where new connections lead."""
        self._listener = Listener(self._relay)
        self._onward: set[asyncio.StreamWriter] = set()
        self.beginnings: list[bytes] = []
        self.address = server

    async def __aenter__(self) -> Self:
        self.address = await self._listener.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.break_connections()
        await self._listener.close()

    def break_connections(self) -> None:
        """As a network does that lost them, also those that lead nowhere yet."""
        self._listener.break_connections()
        for writer in self._onward:
            writer.transport.abort()

    @property
    def in_the_clear(self) -> list[bytes]:
        """What was said without TLS."""
        return [begun for begun in self.beginnings if begun[0] != TLS_HANDSHAKE]

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(4096)
        if not first:
            return
        self.beginnings.append(first)
        there, onward = await asyncio.open_connection(*self.target)
        self._onward.add(onward)
        try:
            onward.write(first)
            await asyncio.gather(_pour(reader, onward), _pour(there, writer))
        finally:
            self._onward.discard(onward)
            onward.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()
    writer.close()
