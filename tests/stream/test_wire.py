"""Claims about extproc/stream/wire.py."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from google.protobuf.message import DecodeError

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.exchange import ProtocolError
from extproc.stream.wire import Wire
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandStream, eventually


def wire(hand: HandStream) -> Wire:
    return Wire(cast("Any", hand))


async def test_messages_in_order_and_the_end() -> None:
    """Each as it came; None is the end."""
    hand = HandStream()
    for message in (envoy.request_headers(), envoy.body()):
        hand.say(message)
    hand.half_close()
    stream = wire(hand)
    read = [await stream.read() for _ in range(3)]
    kinds = [message.WhichOneof("request") if message is not None else None for message in read]
    assert kinds == ["request_headers", "request_body", None]


async def test_the_event_comes_first() -> None:
    """And the read that had begun is not lost."""
    hand, event = HandStream(), asyncio.get_running_loop().create_future()
    stream = wire(hand)
    waiting = asyncio.create_task(stream.ends_before(event))
    await asyncio.sleep(0)
    event.set_result(None)
    assert await waiting is False
    hand.say(envoy.body())
    message = await stream.read()
    assert message is not None and message.HasField("request_body")


async def test_the_end_comes_first() -> None:
    """Also if it comes in the same turn as the event: nobody is there to be answered."""
    for both in (False, True):
        hand, event = HandStream(), asyncio.get_running_loop().create_future()
        stream = wire(hand)
        waiting = asyncio.create_task(stream.ends_before(event))
        await asyncio.sleep(0)
        hand.half_close()
        if both:
            await asyncio.sleep(0)
            event.set_result(None)
        assert await waiting is True


async def test_a_message_is_no_end() -> None:
    """The wait goes on, and the message is read afterwards."""
    hand, event = HandStream(), asyncio.get_running_loop().create_future()
    stream = wire(hand)
    waiting = asyncio.create_task(stream.ends_before(event))
    hand.say(envoy.body())
    await eventually(hand.is_read)
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set_result(None)
    assert await waiting is False
    message = await stream.read()
    assert message is not None and message.HasField("request_body")


async def test_bytes_that_are_no_message() -> None:
    """Told as what they are, read now or ahead."""

    class Garbled(HandStream):
        async def read(self) -> object:
            raise DecodeError

    with pytest.raises(ProtocolError, match="no message"):
        await wire(Garbled()).read()
    event = asyncio.get_running_loop().create_future()
    with pytest.raises(ProtocolError, match="no message"):
        await wire(Garbled()).ends_before(event)


async def test_one_writer_at_a_time() -> None:
    """gRPC takes one message at a time: a second writer waits for the first."""

    class Slow(HandStream):
        def __init__(self) -> None:
            super().__init__()
            self.writers = 0

        async def write(self, response: pb.ProcessingResponse) -> None:
            self.writers += 1
            assert self.writers == 1
            await asyncio.sleep(0)
            self.writers -= 1
            await super().write(response)

    hand = Slow()
    stream = wire(hand)
    await asyncio.gather(*(stream.write(pb.ProcessingResponse()) for _ in range(5)))
    assert len(hand.sent) == 5


async def test_closing_ends_a_read_ahead() -> None:
    """No task is left behind; closing without one is no error."""
    hand, event = HandStream(), asyncio.get_running_loop().create_future()
    stream = wire(hand)
    stream.close()
    event.set_result(None)
    assert await stream.ends_before(event) is False
    before = asyncio.all_tasks()
    stream.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(before - asyncio.all_tasks()) == 1
