"""Prompts and contexts, over real llama-servers of two sizes behind a real Envoy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.stack import CHAT, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.llama]


def prompt(chars: int, max_tokens: int = 2) -> dict[str, object]:
    """The tiny model has a token for each byte."""
    content = ("lorem ipsum dolor sit amet " * (chars // 27 + 1))[:chars]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": max_tokens}


async def test_long_prompts_go_where_they_fit(llama: None, tmp_path: Path) -> None:
    """Ten of 1,500 tokens, where a server with 512 is free; one that fits nowhere is refused."""
    flags: tuple[tuple[str, ...], ...] = (("--ctx-size", "512"), ("--ctx-size", "3584"))
    async with Stack.running(tmp_path, slots=(1, 1), flags=flags) as stack:
        small, large = (server.address for server in stack.servers)
        listed = (await stack.client.get(stack.url("/v1/models"))).json()
        assert [one["meta"]["n_ctx"] for one in listed["data"]] == [3584]
        # The ratio of this model is learned first: four tokens to an estimated one.
        for _ in range(8):
            answer = await stack.client.post(stack.url(CHAT), json=prompt(450, max_tokens=32))
            assert answer.status_code == 200
        learned = await stack.client.post(stack.url(CHAT), json=prompt(1500))
        answers = await asyncio.gather(
            *(stack.client.post(stack.url(CHAT), json=prompt(2200)) for _ in range(10))
        )
        assert {answer.status_code for answer in answers} == {200}, learned.text
        assert len({answer.headers["x-coxswain-endpoint"] for answer in answers}) == 1
        short = await asyncio.gather(
            *(stack.client.post(stack.url(CHAT), json=prompt(100)) for _ in range(6))
        )
        assert {answer.status_code for answer in short} == {200}
        # Rejected also before the ratio was learned: a sixteenth of the 64 KiB of text that the
        # picker reads is more than the longest context.
        refused = await stack.client.post(stack.url(CHAT), json=prompt(90_000))
        error = refused.json()["error"]
        assert refused.status_code == 400, (small, large, refused.text)
        assert error["code"] == "context_length_exceeded" and error["param"] == "messages"
        assert refused.headers["x-coxswain-reason"] == "context-length-exceeded"
        # Counted when Envoy has ended its exchange, which may be after the client has its answer.
        await stack.until(lambda status: status["outcomes"].get("context-length-exceeded") == 1)
        metrics = (await stack.client.get(f"http://127.0.0.1:{stack.http_port}/metrics")).text
        assert 'outcome="context-length-exceeded"' in metrics
