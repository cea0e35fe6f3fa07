"""Claims about scraper/llama/transport.py, with a server that resets what comes."""

from __future__ import annotations

import asyncio
import socket
import struct

import httpx
import pytest

from extproc.demo.port import LOOPBACK
from scraper.llama.transport import LlamaTransport, no_tls


async def test_a_connection_that_is_reset_is_an_error_of_httpx() -> None:
    """Also at the moment at which it was made: over uvloop anyio raises AttributeError then."""

    def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain = writer.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    server = await asyncio.start_server(reset, LOOPBACK, 0)
    url = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}/health"
    try:
        for _ in range(100):
            async with httpx.AsyncClient(transport=LlamaTransport(no_tls())) as client:
                with pytest.raises(httpx.TransportError):
                    await client.get(url)
    finally:
        server.close()
        await server.wait_closed()
