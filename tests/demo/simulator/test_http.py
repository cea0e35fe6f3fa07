"""Claims about extproc/demo/simulator/http.py: requests that no client library would send."""

from __future__ import annotations

import asyncio
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
    assert b"content-length: " in first
    assert second.startswith(b"HTTP/1.1 200") and body == b'{"status":"ok"}'


@pytest.mark.parametrize("target", ["//[", "http://[::1/"])
async def test_a_target_that_is_no_url_is_refused(port: int, target: str) -> None:
    answer = await ask(port, "GET", target)
    assert answer.status == 400


@pytest.mark.parametrize("target", ["*", "/%zz", "/" + "a" * 30_000])
async def test_a_strange_target_is_one_that_nobody_knows(port: int, target: str) -> None:
    assert (await ask(port, "GET", target)).status == 404
