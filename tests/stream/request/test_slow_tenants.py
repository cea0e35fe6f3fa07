"""Claims about requests whose bodies are not read: those of slow senders are waited for."""

from __future__ import annotations

from extproc.core.request import Request
from extproc.stream.exchange import Stage
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import BODY, ExchangeHarness, ask


def suspected(slots: int = 4) -> ExchangeHarness:
    """Its clients have wasted slots."""
    harness = ExchangeHarness(slots, reads_bodies=False)
    dispatcher = harness.fleet.dispatcher
    dispatcher.upload_failed(Request(id="slow", timeout_s=1.0), 100.0, harness.fleet.now)
    return harness


def test_a_body_is_waited_for_and_not_read() -> None:
    harness = suspected()
    exchange = harness.exchange()
    [asked] = harness.feed(exchange, ask())
    assert exchange.stage is Stage.READING and asked.HasField("mode_override")
    [reply] = harness.feed(exchange, envoy.body(BODY))
    assert envoy.set_headers(reply.request_body.response.header_mutation)
    [request] = harness.asked
    assert request.model is None and request.weight_slots == 1
    assert not request.is_partial


def test_without_slow_senders_nothing_is_waited_for() -> None:
    harness = ExchangeHarness(4, reads_bodies=False)
    exchange = harness.exchange()
    assert envoy.destination(harness.feed(exchange, ask())[0])
    assert harness.asked[0].is_partial, "its body may not be here"


def test_suspicion_ends() -> None:
    harness = suspected()
    harness.fleet.now += 1000.0
    exchange = harness.exchange()
    assert envoy.destination(harness.feed(exchange, ask())[0])


def test_a_request_without_a_body_is_not_waited_for() -> None:
    harness = suspected()
    exchange = harness.exchange()
    harness.feed(exchange, envoy.request_headers())
    assert exchange.stage is Stage.LEASED
