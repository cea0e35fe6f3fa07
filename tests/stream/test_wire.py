"""Claims about extproc/stream/wire.py."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
import pytest
from google.protobuf.message import DecodeError

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.exchange import ProtocolError
from extproc.stream.wire import StreamOverError, Wire
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandStream


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


async def test_bytes_that_are_no_message() -> None:
    """Told as what they are."""

    class Garbled(HandStream):
        async def read(self) -> object:
            raise DecodeError

    with pytest.raises(ProtocolError, match="no message"):
        await wire(Garbled()).read()


async def test_writing_into_the_end() -> None:
    """However gRPC calls it, it is one error of ours."""

    class Over(HandStream):
        async def write(self, response: pb.ProcessingResponse) -> None:
            raise grpc.aio.UsageError("RPC already finished.")

    with pytest.raises(StreamOverError):
        await wire(Over()).write(pb.ProcessingResponse())


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
