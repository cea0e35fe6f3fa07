"""What gateways do that our own Envoy files need not: the rest of the endpoint picker protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.stream.relay import MAX_CHUNK_BYTES
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.fakes.raw_http2 import WINDOW_BYTES, Http2Request

pytestmark = pytest.mark.e2e

RARE_LOOKS = {"scraper": {"slow_interval_s": 5.0, "stale_after_s": 20.0}}


def without_attributes(config: str) -> str:
    """A gateway that tells who served as the protocol says, and nothing that only Envoy knows."""
    tree = yaml.safe_load(config)

    def strip(node: Any) -> int:
        if isinstance(node, list):
            return sum(map(strip, node))
        if not isinstance(node, dict):
            return 0
        return sum(map(strip, node.values())) + bool(node.pop("response_attributes", None))

    assert strip(tree)
    return str(yaml.safe_dump(tree))


async def test_who_served_is_learned_from_the_metadata_alone(tmp_path: Path) -> None:
    """The picked server is dead: its fallback answers, is told to the client, and the lease is
    there, so that nobody else is sent to its only slot."""
    async with Stack.running(
        tmp_path,
        slots=(4, 1),
        settings=RARE_LOOKS,
        kind="simulator",
        mode="gateway",
        alter=without_attributes,
    ) as stack:
        large, small = stack.servers
        await stack.kill(large.child)
        held = await stack.hold()
        assert held.endpoint == small.address
        await stack.until(
            lambda status: (
                status["endpoints"][small.address]["slots"]["leased"] == 1
                and status["endpoints"][large.address]["slots"]["leased"] == 0
            )
        )


async def is_refused_by_the_picker(stack: Stack) -> bool:
    return "x-coxswain-reason" in (await stack.client.get(stack.url("/props"))).headers


async def test_without_any_endpoint_a_gateway_is_told_so(tmp_path: Path) -> None:
    """Also about what takes no slot: it may know nobody to go to by itself."""
    async with Stack.running(
        tmp_path, slots=(1,), kind="simulator", mode="gateway", settings=RARE_LOOKS
    ) as stack:
        (server,) = stack.servers
        await stack.kill(server.child)
        await until(lambda: is_refused_by_the_picker(stack))
        answer = await stack.client.get(stack.url("/props"))
        assert answer.status_code == 503
        assert answer.headers["x-coxswain-reason"] == "no-endpoint"
        assert answer.json()["error"]["code"] == "no-endpoint"


async def test_a_body_longer_than_a_chunk_arrives_once_with_its_trailers(tmp_path: Path) -> None:
    """It goes out whole with the headers, though no chunk might be so long; also where it had to
    wait in line."""
    async with Stack.running(tmp_path, slots=(1,), kind="simulator", mode="gateway") as stack:
        body = json.dumps(chat(2)).encode()
        body += b" " * (WINDOW_BYTES - len(body))
        assert len(body) > MAX_CHUNK_BYTES
        held = await stack.hold()
        request = await Http2Request.begin(
            stack.envoy_port, CHAT, {"content-type": "application/json"}
        )
        request.send_body(body)
        request.end_with_trailers()
        await stack.until_waiting(1)
        await held.leave()
        answer = json.loads((await request.answer()).body)
        assert answer["usage"]["completion_tokens"] == 2, answer
