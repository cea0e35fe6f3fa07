"""A closed listener leaves nothing behind, whenever its clients came."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl

import pytest

from tests.fakes.listener import Listener


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readexactly(1))


@pytest.mark.parametrize("is_tls", [False, True])
@pytest.mark.parametrize("turns", range(8))
def test_a_connection_that_comes_as_it_is_closed_is_closed_with_it(
    turns: int, is_tls: bool
) -> None:
    """After so many turns of the loop, which ends at once then. What is left to the collector
    fails this test: warnings are errors."""

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if is_tls else None

    async def listen(client: socket.socket) -> None:
        listener = Listener(echo)
        client.connect(await listener.start(tls=tls))
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close()
        assert listener.connections == 0

    with socket.socket() as client:
        asyncio.run(listen(client))
    gc.collect()


async def test_an_ended_talk_closes_its_connection() -> None:
    listener = Listener(echo)
    reader, writer = await asyncio.open_connection(*await listener.start())
    writer.write(b"!")
    assert await reader.read() == b"!"
    await listener.had_no_connections()
    writer.close()
    await listener.close()
