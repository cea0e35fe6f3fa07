"""Trailers behind a request's body: the server gets the body once, or the client a clear 400.

Envoy 1.40 sends a body twice where it was let go in pieces before its trailers (docs/envoy.md), so
the picker rejects what it hears of.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.conftest import LIMIT_BYTES
from tests.e2e.pool import shares
from tests.e2e.stack import CHAT, Stack, chat
from tests.fakes.raw_http2 import Http2Request

pytestmark = shares("one simulator")

PAUSE_S = 0.05
"""Enough that Envoy mostly has dealt with what came before; the claims hold without, too."""


@pytest.fixture
def stack(one_simulator: Stack) -> Stack:
    """Its server answers 400 to a body that came twice."""
    return one_simulator


async def ask(stack: Stack, body_bytes: int, pauses: tuple[float, float], *, told: bool) -> Any:
    """A chat of that length with trailers; each pause but 0 is one before the next part."""
    body = json.dumps(chat(2)).encode()
    body += b" " * (body_bytes - len(body))
    headers = {"content-type": "application/json"}
    if told:
        headers["content-length"] = str(len(body))
    request = await Http2Request.begin(stack.envoy_port, CHAT, headers)
    await asyncio.sleep(pauses[0])
    request.send_body(body)
    await asyncio.sleep(pauses[1])
    request.end_with_trailers()
    answer = await request.answer()
    assert not answer.is_reset
    return json.loads(answer.body)


PAUSES = [(0, 0), (PAUSE_S, 0), (0, PAUSE_S), (PAUSE_S, PAUSE_S)]
SERVED: dict[tuple[str, str], set[str]] = {
    ("discovery", "auto"): {"short"},
    ("discovery", "never"): {"short", "untold", "long"},
    ("gateway", "auto"): set(),
    ("gateway", "never"): set(),
}
"""Which bodies come to their server whole, by how Envoy asks and whether bodies are read."""


BODY_BYTES = {"short": LIMIT_BYTES // 2, "untold": LIMIT_BYTES // 2, "long": 3 * LIMIT_BYTES}


async def sent_bytes(stack: Stack) -> int:
    """What Envoy has sent to the server so far, its scrapes /health included."""
    name = "cluster.llama.upstream_cx_tx_bytes_total"
    url = f"http://127.0.0.1:{stack.envoy_admin_port}/stats?filter={name}"
    answer = await stack.client.get(url)
    return int(answer.text.rpartition(":")[2])


async def test_a_body_with_trailers_arrives_once_or_not_at_all(
    stack: Stack, mode: str, read_body: str
) -> None:
    """And the one slot is free again for the next."""
    for kind in BODY_BYTES:
        await with_each_pause(stack, mode, read_body, kind)


async def with_each_pause(stack: Stack, mode: str, read_body: str, kind: str) -> None:
    before = await sent_bytes(stack)
    for pauses in PAUSES:
        answer = await ask(stack, BODY_BYTES[kind], pauses, told=kind != "untold")
        if kind in SERVED[mode, read_body]:
            assert answer["usage"]["completion_tokens"] == 2, (pauses, answer)
        else:
            assert answer["error"]["code"] == "bad-request", (pauses, answer)
            assert "trailers" in answer["error"]["message"]
    sent = await sent_bytes(stack) - before
    assert sent < (len(PAUSES) + 1) * BODY_BYTES[kind], "each once at most, and some headers"
