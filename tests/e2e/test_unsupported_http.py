"""Requests that are none for a llama-server, and malformed ones among good ones."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from tests.e2e.pool import shares
from tests.e2e.stack import CHAT, Stack, chat
from tests.fakes.raw_http2 import Http2Request

pytestmark = [*shares("one simulator"), pytest.mark.parametrize("read_body", ["auto"])]

BODY = json.dumps(chat(2)).encode()
UPGRADE = b"connection: upgrade\r\nupgrade: websocket\r\n"


@pytest.fixture
def stack(one_simulator: Stack) -> Stack:
    return one_simulator


async def answer_to(stack: Stack, request: bytes) -> tuple[bytes, httpx.Response]:
    """The answer and its status line."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
    try:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        headers = [line.split(b": ", 1) for line in head[1:] if line]
        length = next(value for name, value in headers if name == b"content-length")
        body = await reader.readexactly(int(length))
    finally:
        writer.transport.abort()
    answer = httpx.Response(
        int(head[0].split()[1]), headers=[(name, value) for name, value in headers], content=body
    )
    return head[0], answer


async def exchanges(stack: Stack) -> float:
    """How many exchanges the picker has had so far."""
    page = await stack.client.get(f"http://127.0.0.1:{stack.http_port}/metrics")
    lines = page.text.splitlines()
    counts = [line for line in lines if line.startswith("coxswain_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in counts)


async def test_upgrades_tunnels_and_requests_without_a_path_are_rejected_in_words(
    stack: Stack,
) -> None:
    """Not one of them becomes an exchange of the picker's, and no slot is taken."""
    await stack.until(lambda status: status["exchanges"] == 0)
    before = await exchanges(stack)
    for start, headers, status in (
        (b"OPTIONS *", b"", 404),
        (b"GET http://test?path=/slots", b"", 404),
        (b"CONNECT test:443", b"", 404),
        (b"GET /", UPGRADE, 403),
        (b"POST " + CHAT.encode(), UPGRADE + b"content-length: %d\r\n" % len(BODY), 403),
    ):
        body = BODY if start.startswith(b"POST") else b""
        request = start + b" HTTP/1.1\r\nhost: test\r\n" + headers + b"\r\n" + body
        line, answer = await answer_to(stack, request)
        assert answer.status_code == status, (start, line)
        assert answer.headers["x-coxswain-reason"] == "unsupported-http", start
        assert answer.json()["error"]["code"] == "unsupported-http"
    assert (await stack.ask()).status_code == 200
    await stack.until(lambda status: status["exchanges"] == 0)
    assert await exchanges(stack) == before + 1, "the last one alone"


MALFORMED = (
    {"connection": "upgrade"},
    {"x-a": "a\nb"},
    {"x-A": "b"},
    {"content-length": "5"},
    {":path": "slots"},
    {":method": "CONNECT", ":protocol": "websocket"},
)


async def test_a_malformed_request_takes_no_other_down_with_it(stack: Stack) -> None:
    """A proxy in front sends many clients' requests over one HTTP/2 connection."""
    running = await stack.hold()
    told = {"content-type": "application/json", "content-length": str(len(BODY))}
    request = await Http2Request.begin(stack.envoy_port, CHAT, told)
    request.send_body(BODY)
    request.end()
    await stack.until_waiting(1)
    for headers in MALFORMED:
        assert await request.refuses_beside(headers), headers
    await running.leave()
    answer = await request.answer()
    assert json.loads(answer.body)["usage"]["completion_tokens"] == 2
