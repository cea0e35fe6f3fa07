"""Claims about the simulator: requests that no client library would send."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
from collections.abc import AsyncIterator

import pytest

from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.server import Simulator
from tests.fakes.raw_http import ask


@pytest.fixture
async def port() -> AsyncIterator[int]:
    simulator = Simulator(SimulatorOptions())
    yield await simulator.start()
    await simulator.close()


@pytest.mark.parametrize("path", ["/health", "/nowhere", "/v1/chat/completions"])
async def test_head_gets_a_head(port: int, path: str) -> None:
    """And no body, and the connection goes on with the next request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"HEAD {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
    writer.write(b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    first, second, body = (await reader.read()).split(b"\r\n\r\n")
    writer.close()
    assert b"content-length: " in first.lower()
    assert second.startswith(b"HTTP/1.1 200") and body == b'{"status":"ok"}'


async def test_a_target_that_is_no_path_is_rejected(port: int) -> None:
    assert (await ask(port, "GET", "*")).status == 400


@pytest.mark.parametrize("target", ["//[", "/%zz", "/" + "a" * 30_000])
async def test_a_strange_target_is_one_that_nobody_knows(port: int, target: str) -> None:
    assert (await ask(port, "GET", target)).status == 404


async def test_a_client_that_resets_its_connection_is_no_news(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As Envoy does whenever its own client leaves in the middle of an answer."""
    gc.collect()
    caplog.clear()  # what tests before this one threw away is no news of this one
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"stream":true,"max_tokens":4000,"messages":[{"role":"user","content":"row"}]}'
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n")
    writer.write(b"content-length: %d\r\n\r\n%s" % (len(body), body))
    await reader.readuntil(b"data: ")
    at_once = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
    writer.transport.abort()
    while any("RequestHandler." in repr(task) for task in asyncio.all_tasks()):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    gc.collect()  # what nobody asked for is told when it is thrown away
    assert "never retrieved" not in caplog.text
