"""Claims about extproc/stream/running.py."""

from __future__ import annotations

from typing import Any, cast

from extproc.core.registry import ExchangeState
from extproc.stream.exchange import Exchange, ExchangeOptions
from extproc.stream.running import RunningStream
from extproc.stream.wire import Wire
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandStream
from tests.fakes.small_fleet import SmallFleet


def running(fleet: SmallFleet) -> tuple[RunningStream, HandStream]:
    hand = HandStream()
    exchange = Exchange(fleet.dispatcher, ExchangeOptions(), fleet.now)
    exchange.feed(envoy.request_headers(), fleet.now)
    exchange.take_reply()
    return RunningStream(exchange, Wire(cast("Any", hand))), hand


async def test_a_stream_that_is_cancelled() -> None:
    """The refusal goes out once, however often it is asked for."""
    fleet = SmallFleet(1)
    stream, hand = running(fleet)
    assert stream.id == stream.exchange.id
    assert stream.sight(fleet.now).state is ExchangeState.RUNNING
    await stream.cancel(fleet.now)
    await stream.cancel(fleet.now)
    assert [envoy.refusal(answer) for answer in hand.sent] == [(503, "cancelled")]


async def test_a_report_reaches_the_exchange() -> None:
    """An event stream that Envoy reported is a broken one."""
    fleet = SmallFleet(1)
    stream, _ = running(fleet)
    answer = envoy.response_headers(content_type="text/event-stream")
    stream.exchange.feed(answer, fleet.now)
    stream.break_off()
    assert stream.exchange.end(fleet.now).verdict.value == "broken"
