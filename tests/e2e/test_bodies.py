"""What passes through: bodies unchanged, streams chunk by chunk, paths that take no slot."""

from __future__ import annotations

import asyncio

from tests.e2e.pool import shares
from tests.e2e.stack import CHAT, Stack, chat, content_of, until

pytestmark = shares("llama-servers")


async def test_a_body_of_3_mb_passes_unchanged(stack: Stack) -> None:
    """/tokenize counts what arrived; it takes no slot, but the way is the same."""
    text = "stroke " * 440_000
    assert len(text) > 3_000_000
    answer = await stack.client.post(stack.url("/tokenize"), json={"content": text})
    assert answer.status_code == 200
    detokenized = await stack.client.post(
        stack.url("/detokenize"), json={"tokens": answer.json()["tokens"]}
    )
    assert detokenized.json()["content"].strip() == text.strip()


async def test_a_slot_request_of_3_mb_arrives_whole(stack: Stack) -> None:
    body = chat(2) | {"ignored": "x" * 3_000_000}
    answer = await stack.client.post(stack.url(CHAT), json=body)
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 2


async def test_each_answer_takes_a_slot(stack: Stack) -> None:
    """Two answers to one chat, and to two prompts: what is leased is what the servers work in."""
    prompts = {"prompt": ["row", "boat"], "max_tokens": 8000, "ignore_eos": True}
    chats = chat(8000) | {"n": 2}
    asked = []
    for slots, path, body in ((2, CHAT, chats), (4, "/v1/completions", prompts)):
        asked.append(asyncio.create_task(stack.client.post(stack.url(path), json=body)))

        async def is_counted(slots: int = slots) -> bool:
            leased = sum(one["leased"] for one in (await stack.slots()).values())
            return leased == slots == sum(await stack.busy())

        await until(is_counted)
    for one in asked:
        one.cancel()


async def test_streams_arrive_chunk_by_chunk(stack: Stack) -> None:
    held = await stack.hold()
    assert held.response.headers["content-type"].startswith("text/event-stream")
    heard = [content_of(await held.next_chunk()) for _ in range(20)]
    assert sum(bool(word) for word in heard) >= 19
    assert await stack.busy() in ([1, 0], [0, 1]), "the server is still at it"


async def test_requests_without_a_slot_are_never_held(stack: Stack) -> None:
    await stack.fill()
    for method, path in (("GET", "/v1/models"), ("GET", "/health"), ("POST", "/tokenize")):
        answer = await stack.client.request(method, stack.url(path), json={"content": "row"})
        assert answer.status_code == 200, path


async def test_another_spelling_of_a_slot_path_takes_a_slot(stack: Stack) -> None:
    """tests/stream/request/test_paths.py has all of them."""
    await stack.fill()
    hurried = {"x-coxswain-queue-timeout-ms": "0"}
    for path in (CHAT, "//v1/./chat/completions"):
        rejected = await stack.client.post(stack.url(path), json=chat(1), headers=hurried)
        assert rejected.status_code == 504, path


async def test_a_client_cannot_choose_its_server(stack: Stack) -> None:
    forged = ("x-gateway-destination-endpoint", "x-gateway-destination-endpoint-served")
    answer = await stack.ask(headers=dict.fromkeys(forged, "127.0.0.1:1"))
    assert answer.status_code == 200
    assert answer.headers["x-coxswain-endpoint"] in {one.address for one in stack.servers}
