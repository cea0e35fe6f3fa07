"""What the simulation claims, spot-checked: over real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extproc.demo.model import ModelShape
from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, MODEL_SHAPE, Stack, chat
from tests.long_run import in_long_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SLOW, FAST = MODEL_SHAPE, ModelShape()
REQUESTS = 24
PROMPT_WORDS = 200
WORDS = ("stroke", "catch", "drive", "finish", "release", "bow", "stern", "port", "oar", "rigger")
CHATS, TURNS = 3, 4
"""One chat for each server: a cache on a server that is used beyond its share does not count."""
SLOTS = (CHATS,) * 3
"""Wherever a chat was, there is room for it: nobody has to leave a cache for want of a slot."""
SHAPES = (SLOW,) * len(SLOTS)
"""Reading a prompt takes long beside all else: where it was read before there is much to save."""


def prose(random: Random, words: int) -> str:
    return " ".join(random.choice(WORDS) for _ in range(words))


class Chat:
    """A conversation that grows; it counts what of each prompt a server had seen before."""

    def __init__(self, stack: Stack, random: Random) -> None:
        self._stack = stack
        self._random = random
        # Long, as system prompts are: there is something to save.
        self._messages = [{"role": "system", "content": prose(random, 300)}]
        self._known_tokens = 0
        self.endpoints: list[str] = []
        self.cached_tokens = 0
        self.cacheable_tokens = 0

    async def take_turn(self) -> None:
        self._messages.append({"role": "user", "content": prose(self._random, 30)})
        body = {"messages": self._messages, "max_tokens": 8, "ignore_eos": True}
        answer = await self._stack.client.post(self._stack.url(CHAT), json=body)
        assert answer.status_code == 200
        told = answer.json()
        self._messages.append(told["choices"][0]["message"])
        self.endpoints.append(answer.headers["x-coxswain-endpoint"])
        usage = told["usage"]
        self.cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]
        self.cacheable_tokens += self._known_tokens
        self._known_tokens = usage["prompt_tokens"]


async def converse(stack: Stack) -> list[Chat]:
    """Begin the chats at once, so that they are spread. Then one turn after another, in a new order
    each round: nobody is in the way at home, so nothing but the cache decides."""
    random = Random(7)
    chats = [Chat(stack, Random(number)) for number in range(CHATS)]
    await asyncio.gather(*(chat.take_turn() for chat in chats))
    for _ in range(TURNS - 1):
        for one in random.sample(chats, CHATS):
            await one.take_turn()
    return chats


async def test_a_chat_goes_back_to_the_server_that_remembers_it(
    llama: None, tmp_path: Path
) -> None:
    async with Stack.running(tmp_path, slots=SLOTS, shapes=SHAPES, settings=QUICK) as stack:
        chats = await converse(stack)
    cached = sum(chat.cached_tokens for chat in chats)
    cacheable = sum(chat.cacheable_tokens for chat in chats)
    assert cached >= 0.9 * cacheable, [chat.endpoints for chat in chats]
    assert len({chat.endpoints[0] for chat in chats}) > 1, "one server does not get everybody"


@in_long_run
async def test_without_reading_bodies_chats_wander(llama: None, tmp_path: Path) -> None:
    """The control: the same chats, blind. What the first test sees is not llama.cpp's doing."""
    settings: dict[str, Any] = {**QUICK, "routing": {"read_body": "never"}}
    async with Stack.running(tmp_path, slots=SLOTS, shapes=SHAPES, settings=settings) as stack:
        chats = await converse(stack)
    cached = sum(chat.cached_tokens for chat in chats)
    cacheable = sum(chat.cacheable_tokens for chat in chats)
    assert cached < 0.9 * cacheable


async def body_of(request: dict[str, Any]) -> AsyncIterator[bytes]:
    """Sent in chunks: no header tells its length."""
    yield json.dumps(request).encode()


async def ask_one_after_another(stack: Stack) -> list[bool]:
    """Streamed requests, each with a prompt of its own; whether each went to the fast server."""
    fast = stack.servers[1].address
    random = Random(3)
    went_fast = []
    for _ in range(REQUESTS):
        asked = body_of(chat(4, stream=True, content=prose(random, PROMPT_WORDS)))
        headers = {"content-type": "application/json"}
        async with stack.client.stream(
            "POST", stack.url(CHAT), content=asked, headers=headers
        ) as answer:
            assert answer.status_code == 200, await answer.aread()
            went_fast.append(answer.headers["x-coxswain-endpoint"] == fast)
            async for _ in answer.aiter_lines():
                pass
    return went_fast


async def test_the_fast_server_is_found_out(llama: None, tmp_path: Path) -> None:
    """Both are idle before each request, and nothing but their speed tells them apart.

    Whatever the build: also where a stream's headers come long before its first token.
    """
    async with Stack.running(tmp_path, slots=(2, 2), shapes=(SLOW, FAST), settings=QUICK) as stack:
        rounds: list[list[bool]] = []
        while len(rounds) < 3:  # a busy machine slows the fast server, too
            rounds.append(await ask_one_after_another(stack))
            if sum(rounds[-1][12:]) >= 11:
                break
    assert sum(rounds[-1][12:]) >= 11, rounds


@in_long_run
async def test_without_reading_bodies_both_servers_are_alike(llama: None, tmp_path: Path) -> None:
    """The control: the same requests, of which nothing is known, so that chance decides. It sends
    fewer than 3 of 24 one way four times in 100,000."""
    settings: dict[str, Any] = {**QUICK, "routing": {"read_body": "never"}}
    async with Stack.running(
        tmp_path, slots=(2, 2), shapes=(SLOW, FAST), settings=settings
    ) as stack:
        went_fast = await ask_one_after_another(stack)
    assert 3 <= sum(went_fast) <= REQUESTS - 3, went_fast
