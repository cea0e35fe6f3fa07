"""Claims about extproc/stream/upload_watchdog.py."""

from __future__ import annotations

from extproc.core.exchange_record import Outcome
from extproc.core.scheduler.exchange_registry import ExchangeRegistry
from extproc.pb import access_log_pb2 as pb
from extproc.stream.exchange import Exchange, ExchangeOptions
from extproc.stream.running_stream import RunningStream
from extproc.stream.stage import Stage
from extproc.stream.upload_watchdog import UploadWatchdog
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall, NoOwner
from tests.fakes.small_fleet import SmallFleet


class ExchangeHarness:
    """Reports about requests to one server with one slot."""

    def __init__(self) -> None:
        self.fleet = SmallFleet(1)
        self.registry = ExchangeRegistry()
        self.reports = UploadWatchdog(self.registry, lambda: self.fleet.now)

    def ask(self) -> tuple[Exchange, HandCall]:
        hand = HandCall()
        exchange = Exchange(self.fleet.dispatcher, ExchangeOptions(), self.fleet.now)
        exchange.feed(envoy.request_headers(), self.fleet.now)
        exchange.take_reply()
        self.registry.enter(RunningStream(exchange, hand, NoOwner(lambda: self.fleet.now)))
        return exchange, hand

    async def tell(
        self, exchange: Exchange, body_bytes: int, *, is_whole: bool = False, after_s: float = 15.0
    ) -> None:
        """A report, `after_s` after what was before it."""
        self.fleet.now += after_s
        entry = pb.HTTPAccessLogEntry()
        entry.request.request_body_bytes = body_bytes
        metadata = entry.common_properties.metadata.filter_metadata
        metadata["envoy.lb"].fields["x-coxswain-exchange"].string_value = exchange.id
        if is_whole:
            entry.common_properties.time_to_last_rx_byte.FromSeconds(1)
        self.reports.take_in(entry)


async def test_the_same_number_for_30_s_is_a_client_that_stopped() -> None:
    """It is rejected once, and its slot is free for others."""
    harness = ExchangeHarness()
    exchange, hand = harness.ask()
    for body_bytes in (10, 20, 20, 20, 20):
        await harness.tell(exchange, body_bytes)
    assert [envoy.rejection(answer) for answer in hand.sent] == [(408, "upload-stalled")]
    record = exchange.end(harness.fleet.now)
    assert record.reason is not None and record.reason.value == "upload-stalled"
    assert record.outcome is Outcome.BROKEN


async def test_who_goes_on_is_left_alone() -> None:
    """However slowly; nor does it matter how long a whole request waits for its answer."""
    harness = ExchangeHarness()
    exchange, hand = harness.ask()
    for body_bytes in (10, 11, 12):
        await harness.tell(exchange, body_bytes)
    for _ in range(3):
        await harness.tell(exchange, 12, is_whole=True)
    assert hand.sent == []


async def test_who_is_slow_while_others_wait_gives_its_slot_to_them() -> None:
    """It is rejected with the rate that was wanted; the next in the queue is a whole request."""
    harness = ExchangeHarness()
    exchange, hand = harness.ask()
    for body_bytes in (10, 11, 12):
        await harness.tell(exchange, body_bytes, after_s=0.5)
    waiting, _ = harness.ask()
    assert waiting.stage is Stage.QUEUED
    for body_bytes in (13, 14, 15):
        assert hand.sent == []
        await harness.tell(exchange, body_bytes, after_s=0.5)
    (answer,) = hand.sent
    assert envoy.rejection(answer) == (408, "upload-stalled")
    assert (
        b"less than 125000 bytes per second while other requests waited"
        in answer.SerializeToString()
    )


async def test_who_waits_or_is_answered_is_left_alone() -> None:
    """In the line nothing is held for it, and a server may answer before the request's end."""
    harness = ExchangeHarness()
    answered, first = harness.ask()
    waiting, second = harness.ask()
    answered.feed(envoy.response_headers(), harness.fleet.now)
    for exchange in (answered, waiting):
        for _ in range(3):
            await harness.tell(exchange, 10)
    assert first.sent == second.sent == []


async def test_a_report_of_nobody_known_is_passed_over() -> None:
    """Nor is one without our metadata an error."""
    harness = ExchangeHarness()
    exchange, hand = harness.ask()
    harness.registry.leave(RunningStream(exchange, hand, NoOwner(lambda: harness.fleet.now)))
    for _ in range(2):
        await harness.tell(exchange, 10)
        harness.reports.take_in(pb.HTTPAccessLogEntry())
    assert hand.sent == []
