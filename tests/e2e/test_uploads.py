"""Clients that send their request slowly, or stop: over real Envoy, in both modes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import pytest_asyncio

from tests.e2e.conftest import QUICK
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import CHAT, Stack, chat

pytestmark = shares("one simulator, uploads")

IDLE_S = 3.0
"""Longer than a busy machine keeps the sender waiting for its turn."""
THOUGHT_TOKENS = 900
"""4.5 s at the simulator's pace."""
SOME_BYTES = 2_000_000
"""More than the picker waits for before it decides, so that the rest is the server's affair."""


@pytest_asyncio.fixture(loop_scope="session")
async def stack(mode: str, read_body: str, stacks: StackPool) -> AsyncIterator[Stack]:
    """One simulated server with one slot; Envoy keeps no more of a body than is read."""
    settings: dict[str, Any] = {
        **QUICK,
        "envoy": {"request_body_idle_timeout_s": IDLE_S, "body_buffer_bytes": 65_536},
        "routing": {"read_body": read_body},
    }
    async with stacks.lend(slots=(1,), kind="simulator", settings=settings, mode=mode) as lent:
        yield lent


class Upload:
    """A request with a length that is told, sent by hand."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.sent = 0

    @classmethod
    @asynccontextmanager
    async def to(cls, stack: Stack, body: bytes) -> AsyncIterator[Self]:
        upload = cls(body)
        await upload._begin(stack)
        try:
            yield upload
        finally:
            upload.writer.transport.abort()

    async def _begin(self, stack: Stack) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
        lines = [f"POST {CHAT} HTTP/1.1", "host: test", "content-type: application/json"]
        self.writer.write(
            "\r\n".join([*lines, f"content-length: {len(self.body)}", "", ""]).encode()
        )

    async def send(self, count: int) -> None:
        self.writer.write(self.body[self.sent : self.sent + count])
        self.sent += count
        await self.writer.drain()

    async def trickle(self) -> tuple[int, bytes]:
        """Send a few bytes now and then until it is answered."""
        answering = asyncio.create_task(self.answer())
        try:
            while not (await asyncio.wait([answering], timeout=0.1))[0]:
                with suppress(ConnectionError):
                    await self.send(10)
            return await answering
        finally:
            answering.cancel()

    async def answer(self) -> tuple[int, bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1]), head.lower()


def large(max_tokens: int = 1) -> bytes:
    return json.dumps(chat(max_tokens) | {"padding": "x" * (2 * SOME_BYTES)}).encode()


async def until_leased(stack: Stack, count: int) -> None:
    await stack.until(
        lambda status: sum(one["slots"]["leased"] for one in status["endpoints"].values()) == count
    )


async def test_who_stops_in_the_middle_loses_its_slot(stack: Stack) -> None:
    """Also while nobody waits for it."""
    async with Upload.to(stack, large()) as upload:
        await upload.send(SOME_BYTES)
        await until_leased(stack, 1)
        status, head = await upload.answer()
        assert status == 408
        assert b"x-coxswain-reason: upload-stalled" in head
        assert (await stack.ask()).status_code == 200


async def test_who_goes_on_slowly_keeps_it_until_others_wait(stack: Stack) -> None:
    """For half as long again as the idle limit, a few bytes each time. Then whoever waits gets it,
    while a client at some pace is left alone."""
    async with Upload.to(stack, large()) as slow:
        await slow.send(SOME_BYTES)
        await until_leased(stack, 1)
        for _ in range(8):
            await asyncio.sleep(IDLE_S / 5)
            await slow.send(10)
        async with Upload.to(stack, large()) as waiting:
            await waiting.send(SOME_BYTES)
            await stack.until_waiting(1)
            status, head = await slow.trickle()
            assert status == 408
            assert b"x-coxswain-reason: upload-stalled" in head
            await until_leased(stack, 1)
            also_waiting = asyncio.create_task(stack.ask())
            await stack.until_waiting(1)
            await waiting.send(len(waiting.body))
            assert (await waiting.answer())[0] == 200
            assert (await also_waiting).status_code == 200


async def test_waiting_and_thinking_are_no_stalls(stack: Stack) -> None:
    """One waits in the line, and one for a long answer, over more than the limit."""
    thinking = asyncio.create_task(stack.ask(THOUGHT_TOKENS))
    await until_leased(stack, 1)
    async with Upload.to(stack, large()) as waiting:
        await waiting.send(len(waiting.body))
        await stack.until_waiting(1)
        assert (await thinking).status_code == 200
        assert (await waiting.answer())[0] == 200
