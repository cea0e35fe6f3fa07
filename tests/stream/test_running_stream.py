"""Claims about extproc/stream/running_stream.py."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import grpc
import pytest

from extproc.core.scheduler.exchange_registry import ExchangeState
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.exchange import Exchange, ExchangeOptions
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.running_stream import RunningStream, StreamOverError
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandStream
from tests.fakes.small_fleet import SmallFleet

OVER = [
    grpc.aio.InternalError("Failed to execute the batch."),
    grpc.aio.UsageError("RPC already finished."),
    grpc.aio.AbortError("Locally aborted."),
]
"""What gRPC raises when a stream is over: its client left, it was answered, it was broken off."""


def running(fleet: SmallFleet) -> tuple[RunningStream, HandStream]:
    hand = HandStream()
    exchange = Exchange(fleet.dispatcher, ExchangeOptions(), fleet.now)
    exchange.feed(envoy.request_headers(), fleet.now)
    exchange.take_reply()
    return RunningStream(exchange, cast("Any", hand)), hand


async def test_a_stream_that_is_cancelled() -> None:
    """The rejection goes out once, however often it is asked for."""
    fleet = SmallFleet(1)
    stream, hand = running(fleet)
    assert stream.id == stream.exchange.id
    assert stream.snapshot(fleet.now).state is ExchangeState.RUNNING
    await stream.cancel(fleet.now)
    await stream.cancel(fleet.now)
    assert [envoy.rejection(answer) for answer in hand.sent] == [(503, "cancelled")]


@pytest.mark.parametrize("error", OVER)
async def test_a_cancel_that_crosses_the_end(error: Exception) -> None:
    """The operator hears of no error of ours: the exchange is over, as was wished."""
    fleet = SmallFleet(1)
    exchange = Exchange(fleet.dispatcher, ExchangeOptions(), fleet.now)
    exchange.feed(envoy.request_headers(), fleet.now)
    await RunningStream(exchange, cast("Any", Dead(error))).cancel(fleet.now)


async def test_a_report_reaches_the_exchange() -> None:
    """An event stream that Envoy reported is a broken one."""
    fleet = SmallFleet(1)
    stream, _ = running(fleet)
    answer = envoy.response_headers(content_type="text/event-stream")
    stream.exchange.feed(answer, fleet.now)
    stream.break_off()
    assert stream.exchange.end(fleet.now).outcome.value == "broken"


# The end of a wait


class Waiting:
    """One stream that waits for the only slot, which `serve` hands to it."""

    def __init__(self, hand: HandStream | None = None) -> None:
        self.hand = hand or HandStream()
        self.fleet = SmallFleet(1)
        pending = PendingStreams()
        self.fleet.listener.on_settled = pending.settled
        self._lease = self.fleet.pick()
        exchange = Exchange(self.fleet.dispatcher, ExchangeOptions(), self.fleet.now)
        exchange.feed(envoy.request_headers(), self.fleet.now)
        assert exchange.ticket is not None
        self.stream = RunningStream(exchange, cast("Any", self.hand))
        pending.enter(self.stream, exchange.ticket)

    def serve(self) -> None:
        self.fleet.finish(self._lease)


async def test_who_waits_for_the_end_of_a_wait() -> None:
    """Returns with it, and at once afterwards; then there is something to tell."""
    waiting = Waiting()
    until_settled = waiting.stream.settled()
    assert not until_settled.done()
    waiting.serve()
    await until_settled
    await waiting.stream.settled()
    await waiting.stream.answer()
    assert [envoy.destination(one) for one in waiting.hand.sent] == [["10.0.0.1:8000"]]


async def test_a_wait_whose_reader_was_cancelled() -> None:
    """Its settlement comes all the same, so that the end of the exchange can give the slot back:
    at once, since the destination was never sent."""
    waiting = Waiting()
    until_settled = waiting.stream.settled()
    until_settled.cancel()
    waiting.serve()
    assert waiting.stream.exchange.end(waiting.fleet.now).outcome.value == "withdrawn"
    assert waiting.fleet.account(waiting.fleet.addresses[0]).leases == {}


# Writing


class Dead(HandStream):
    """Refuses what is written as gRPC does when its stream is over."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    async def write(self, response: pb.ProcessingResponse) -> None:
        raise self._error


@pytest.mark.parametrize("error", OVER)
async def test_an_answer_into_a_dead_stream(error: Exception) -> None:
    """However gRPC calls it, it is one error of ours."""
    waiting = Waiting(Dead(error))
    waiting.serve()
    with pytest.raises(StreamOverError):
        await waiting.stream.answer()


async def test_one_sender_at_a_time() -> None:
    """gRPC takes one message at a time: what an operator has to say is said by who is sending."""

    class Slow(HandStream):
        def __init__(self) -> None:
            super().__init__()
            self.senders = 0

        async def write(self, response: pb.ProcessingResponse) -> None:
            self.senders += 1
            assert self.senders == 1
            loop = asyncio.get_running_loop()
            written = loop.create_future()
            loop.call_soon(written.set_result, None)
            await written
            self.senders -= 1
            await super().write(response)

    waiting = Waiting(Slow())
    waiting.serve()
    await asyncio.gather(
        waiting.stream.answer(pb.ProcessingResponse()), waiting.stream.cancel(waiting.fleet.now)
    )
    assert [envoy.rejection(one) for one in waiting.hand.sent[1:]] == [(503, "cancelled")]
