"""A conversation outlives its client: over real Envoy, with real llama-servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, CONTEXT_TOKENS, Stack, chat

pytestmark = [pytest.mark.e2e]

TOKENS = 1_500
"""It takes some seconds: the answer runs on while the picker is asked what it sees."""
HEADER = "x-conversation-id"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def leave_early(stack: Stack, id_: str, tokens: int) -> str:
    """Ask and leave after the first bytes; returns them."""
    asked = stack.client.stream(
        "POST",
        stack.url(CHAT),
        json=chat(tokens, stream=True),
        headers={HEADER: id_, **bearer("one")},
    )
    async with asked as response:
        assert response.status_code == 200
        async for text in response.aiter_text():
            return text
    raise AssertionError("it ended before it began")


@pytest.mark.usefixtures("llama")
async def test_who_left_reads_the_rest_and_its_slot_is_nobodys(tmp_path: Path) -> None:
    """Nobody else reads or ends it, and until it ends nobody is sent to its server."""
    async with Stack.running(
        tmp_path, slots=(1, 1), settings={**QUICK, "ledger": {"draining_cap_s": 1.0}}
    ) as stack:
        url = stack.url("/v1/stream")
        mine: dict[str, Any] = {"params": {"conv_id": "c::tiny"}, "headers": bearer("one")}
        begun = await leave_early(stack, "c::tiny", TOKENS)
        await stack.until(lambda status: status["slots"]["draining"] == 1)
        other = await stack.ask(1)
        assert other.status_code == 200
        for method in ("GET", "DELETE"):
            denied = await stack.client.request(method, url, **{**mine, "headers": bearer("two")})
            reason = denied.headers["x-coxswain-reason"]
            assert (denied.status_code, reason) == (404, "conversation-not-found")
        found = await stack.client.post(
            stack.url("/v1/streams/lookup"),
            json={"conversation_ids": ["c", "d"]},
            headers=bearer("one"),
        )
        assert [one["conversation_id"] for one in found.json()] == ["c::tiny"]
        whole = await stack.client.get(url, **mine)
        assert whole.status_code == 200 and whole.text.startswith(begun)
        assert whole.text.rstrip().endswith("data: [DONE]")
        await stack.until(lambda status: status["slots"]["idle"] == 2)

        await leave_early(stack, "long", TOKENS * 6)
        long: dict[str, Any] = {"params": {"conv_id": "long"}, "headers": bearer("one")}
        assert (await stack.client.delete(url, **long)).status_code == 204
        assert (await stack.client.get(url, **long)).status_code == 404
        await stack.until(lambda status: status["slots"]["idle"] == 2)
        assert await stack.busy() == [0, 0]


@pytest.mark.usefixtures("llama")
async def test_without_its_header_a_conversation_ends_with_its_client(tmp_path: Path) -> None:
    """The server does not know the id: it stops, and keeps nothing."""
    settings = {**QUICK, "routing": {"conversations": "strip"}}
    async with Stack.running(tmp_path, slots=(1,), settings=settings) as stack:
        begun = await leave_early(stack, "c", CONTEXT_TOKENS - 200)
        assert begun
        await stack.until(lambda status: status["slots"]["idle"] == 1)
        assert await stack.busy() == [0]
        asked: dict[str, Any] = {"params": {"conv_id": "c"}, "headers": bearer("one")}
        gone = await stack.client.get(stack.url("/v1/stream"), **asked)
        assert (gone.status_code, gone.headers["x-coxswain-reason"]) == (
            404,
            "conversation-not-found",
        )
        server = f"http://{stack.servers[0].address}/v1/streams/lookup"
        kept = await stack.client.post(server, json={"conversation_ids": ["c"]})
        assert kept.json() == []
