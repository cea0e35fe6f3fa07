"""A TCP relay over which everything takes a while, as over a long way. It can be the end of TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CHUNK = 65_536


@asynccontextmanager
async def slow_link(
    port: int, delay_s: float, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """The port of a relay to this one, on loopback: what either side says arrives `delay_s` later,
    in order, and so does its end. With `tls` it speaks that to its clients alone."""

    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(_relay(reader, writer, port, delay_s)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _relay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, delay_s: float
) -> None:
    far_writer = None
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as ways:
            ways.create_task(_carry(reader, far_writer, delay_s))
            ways.create_task(_carry(far_reader, writer, delay_s))
    finally:
        writer.transport.abort()
        if far_writer is not None:
            far_writer.transport.abort()


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    loop = asyncio.get_running_loop()
    arriving: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, data = await arriving.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                else:
                    writer.close()
                return
            writer.write(data)

    async with asyncio.TaskGroup() as both:
        both.create_task(deliver())
        data = b"."
        while data:
            data = await reader.read(CHUNK)
            arriving.put_nowait((loop.time() + delay_s, data))
