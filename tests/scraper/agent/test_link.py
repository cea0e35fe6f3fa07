"""An agent's stream where nobody speaks any more: a picker that is frozen, or whose host is gone
without a word, while the connection still looks open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from extproc.pb.coxswain.v1 import agent_pb2 as pb
from extproc.pb.coxswain.v1.agent_pb2_grpc import (
    AgentsServicer,
    add_AgentsServicer_to_server,
)
from scraper.agent import link
from scraper.agent.link import Link
from scraper.agent.picker_stream import LinkError

SOON_S = 0.05
HOUR_S = 3600.0


class MutePicker(AgentsServicer):
    """Takes every stream, says so many messages on it, and then nothing."""

    def __init__(self, words: int) -> None:
        self.words = words
        self.heard: list[pb.AgentMessage] = []
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    async def Attach(  # noqa: N802  # gRPC names it
        self,
        messages: AsyncIterator[pb.AgentMessage],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        self.began.set()
        try:
            for number in range(1, self.words + 1):
                await context.write(pb.PickerMessage(number=number))
            async for message in messages:
                self.heard.append(message)
        finally:
            self.ended.set()


@asynccontextmanager
async def mute(words: int) -> AsyncIterator[tuple[MutePicker, grpc.aio.Channel]]:
    picker = MutePicker(words)
    server = grpc.aio.server()
    add_AgentsServicer_to_server(picker, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield picker, channel
    finally:
        await server.stop(None)


def let_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """For all that waits in this event loop."""
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)


def fresh() -> Link:
    hello = pb.Hello(address="10.0.0.1:8080", agent_id="a")
    return Link(hello, lambda: None, lambda _: None, time.monotonic)


@pytest.mark.parametrize("words", [0, 1])
async def test_a_picker_that_says_nothing_is_given_up(
    words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its first word and after it; what it can do about that, only another attempt shows."""
    monkeypatch.setattr(link, "WELCOME_S", HOUR_S if words == 0 else 2 * HOUR_S)
    monkeypatch.setattr(link, "PICKER_SILENT_S", 2 * HOUR_S if words == 0 else HOUR_S)
    async with mute(words) as (picker, channel):
        subject = fresh()
        work = asyncio.create_task(subject.run(channel))
        await picker.began.wait()
        while words and not subject.is_attached:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.001)
        let_pass(monkeypatch, HOUR_S)
        with pytest.raises(LinkError, match="has sent nothing") as caught:
            await work
        assert not caught.value.is_rejection
        await picker.ended.wait()


async def test_nothing_is_reported_before_the_picker_spoke() -> None:
    """Its number is what the times of all looks rest on; then hello comes first."""
    async with mute(0) as (picker, channel):
        work = asyncio.create_task(fresh().run(channel))
        await asyncio.sleep(SOON_S)
        assert picker.heard == []
        work.cancel()
    async with mute(1) as (picker, channel):
        work = asyncio.create_task(fresh().run(channel))
        while len(picker.heard) < 2:  # noqa: ASYNC110  # it tells nobody
            await asyncio.sleep(0.001)
        kinds = [message.WhichOneof("content") for message in picker.heard]
        assert kinds[0] == "hello" and "hello" not in kinds[1:]
        assert all(message.echo == 1 for message in picker.heard)
        work.cancel()


async def test_a_stream_that_is_hung_up_ends_at_once_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also before the picker spoke."""
    monkeypatch.setattr(link, "WELCOME_S", HOUR_S)
    monkeypatch.setattr(link, "PICKER_SILENT_S", HOUR_S)
    for words in (0, 1):
        async with mute(words) as (picker, channel):
            subject = fresh()
            work = asyncio.create_task(subject.run(channel))
            while words and not subject.is_attached:  # noqa: ASYNC110  # it tells nobody
                await asyncio.sleep(0.001)
            subject.hang_up()
            assert await work is False
            if words == 0:
                assert picker.heard == []
