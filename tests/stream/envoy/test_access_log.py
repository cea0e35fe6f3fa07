"""Claims about extproc/stream/envoy/access_log.py."""

from __future__ import annotations

from collections.abc import Mapping

import grpc
import pytest

from extproc.core.address import Address
from extproc.core.exchange_record import Outcome
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.outliers.failure_evidence import Fault
from extproc.pb import access_log_service_pb2 as pb
from extproc.stream.envoy.access_log import STREAM_ACCESS_LOGS, AccessLog
from extproc.stream.exchange import Exchange, ExchangeOptions
from extproc.stream.running_stream import RunningStream
from extproc.stream.stage import Stage
from extproc.transport import ServiceTable
from tests.fakes import envoy_messages as envoy
from tests.fakes.data_plane import serving
from tests.fakes.envoy_stream import HandCall, NoOwner, eventually
from tests.fakes.log import logged
from tests.fakes.small_fleet import SmallFleet

DESTINATION, SERVED = "x-gateway-destination-endpoint", "x-gateway-destination-endpoint-served"


def message(*entries: Mapping[str, str], namespace: str = "envoy.lb") -> pb.StreamAccessLogsMessage:
    """What Envoy's access log sends: one entry for each exchange that broke off."""
    told = pb.StreamAccessLogsMessage()
    for values in entries:
        entry = told.http_logs.log_entry.add()
        fields = entry.common_properties.metadata.filter_metadata[namespace].fields
        for key, value in values.items():
            fields[key].string_value = value
    return told


class ExchangeHarness:
    """Reports, a registry with one running event stream, and what was heard too late."""

    def __init__(self) -> None:
        self.fleet = SmallFleet(1, 1)
        self.registry = ExchangeRegistry()
        self.late: list[Address] = []
        self.bypasses: list[float] = []
        self.reports = AccessLog(
            self.registry,
            self.late.append,
            self.bypasses.append,
            lambda: self.fleet.now,
        )
        self.exchange = Exchange(self.fleet.dispatcher, ExchangeOptions(), self.fleet.now)
        self.exchange.feed(envoy.request_headers(), self.fleet.now)
        self.exchange.take_reply()
        answer = envoy.response_headers(content_type="text/event-stream")
        self.exchange.feed(answer, self.fleet.now)
        owner = NoOwner(lambda: self.fleet.now)
        self.registry.enter(RunningStream(self.exchange, HandCall(), owner))

    def outcome(self) -> Outcome:
        return self.exchange.end(self.fleet.now).outcome

    def leased(self) -> int:
        return sum(self.fleet.account(one).leased_slots for one in self.fleet.addresses)


def test_a_running_exchange_is_marked() -> None:
    """It counts as broken when its stream ends; nobody is late."""
    harness = ExchangeHarness()
    harness.reports.take_in(message({"x-coxswain-exchange": harness.exchange.id}))
    assert harness.outcome() is Outcome.BROKEN
    assert harness.late == []


@pytest.mark.parametrize(
    ("flag", "is_servers_fault"),
    [
        ("upstream_connection_termination", True),
        ("upstream_remote_reset", True),
        ("upstream_protocol_error", True),
        (None, False),
    ],
)
def test_whose_fault_it_was_is_read(flag: str | None, is_servers_fault: bool) -> None:
    """A client that left says nothing of its server."""
    harness = ExchangeHarness()
    report = message({"x-coxswain-exchange": harness.exchange.id})
    if flag is not None:
        setattr(report.http_logs.log_entry[0].common_properties.response_flags, flag, True)
    harness.reports.take_in(report)
    harness.exchange.end(harness.fleet.now)
    evidence = harness.fleet.dispatcher.state.outliers._evidence
    failures = [failure for each in evidence.values() for failure in each.failures]
    expected = [Fault.BROKEN_ANSWER] if is_servers_fault else []
    assert [failure.fault for failure in failures] == expected


def test_a_report_about_another_exchange_is_none_about_this_one() -> None:
    """It ends without a proof: its slot drains."""
    harness = ExchangeHarness()
    harness.reports.take_in(message({"x-coxswain-exchange": "other", SERVED: "10.0.0.1:8001"}))
    assert (harness.outcome(), harness.leased()) == (Outcome.SERVED, 1)


@pytest.mark.parametrize(
    ("times", "outcome", "leased"),
    [
        ({"time_to_last_upstream_rx_byte", "time_to_last_downstream_tx_byte"}, "served", 0),
        ({"time_to_last_upstream_rx_byte"}, "broken", 0),  # its client left at the last moment
        ({"time_to_last_downstream_tx_byte"}, "broken", 1),
        (set(), "broken", 1),  # a reset without an error: no flag is set
    ],
)
def test_the_last_byte_of_the_server_proves_the_end(
    times: set[str], outcome: str, leased: int
) -> None:
    """No flag is no proof."""
    harness = ExchangeHarness()
    report = message({"x-coxswain-exchange": harness.exchange.id})
    for time in times:
        getattr(report.http_logs.log_entry[0].common_properties, time).FromSeconds(1)
    harness.reports.take_in(report)
    assert (harness.outcome().value, harness.leased()) == (outcome, leased)


def test_a_late_report_says_where_to_search() -> None:
    """Who served, or else the first of those who were to serve."""
    harness = ExchangeHarness()
    harness.reports.take_in(
        message(
            {"x-coxswain-exchange": "over", SERVED: "10.0.0.1:8001", DESTINATION: "10.0.0.1:8000"},
            {"x-coxswain-exchange": "over", DESTINATION: "10.0.0.1:8000,10.0.0.1:8001"},
        )
    )
    assert harness.late == [Address("10.0.0.1", 8001), Address("10.0.0.1", 8000)]


def test_a_server_without_an_exchange_is_a_bypass() -> None:
    """With its duration, so that its beginning is known; no lease was there to look for."""
    harness = ExchangeHarness()
    report = message({SERVED: "10.0.0.1:8001"})
    report.http_logs.log_entry[0].common_properties.duration.FromMilliseconds(2500)
    harness.reports.take_in(report)
    assert harness.bypasses == [2.5]
    assert harness.late == []


def test_what_the_picker_decided_is_no_bypass_whenever_the_report_comes() -> None:
    """Neither while its stream runs, nor after its end, nor from a picker that is gone."""
    harness = ExchangeHarness()
    report = message({"x-coxswain-exchange": harness.exchange.id, SERVED: "10.0.0.1:8001"})
    harness.reports.take_in(report)
    del harness.registry._exchanges[harness.exchange.id]
    harness.reports.take_in(report)
    harness.reports.take_in(message({"x-coxswain-exchange": "0" * 16, SERVED: "10.0.0.1:8001"}))
    harness.reports.take_in(message({DESTINATION: "10.0.0.1:8001"}))
    assert harness.bypasses == []


@pytest.mark.parametrize("text", ["", "nonsense", ",", "10.0.0.1:" + "9" * 5000])
def test_odd_entries_are_passed_over(text: str) -> None:
    """Neither an odd address nor another filter's metadata stops the entries after it."""
    harness = ExchangeHarness()
    harness.reports.take_in(
        message({DESTINATION: text}, {"x-coxswain-exchange": harness.exchange.id})
    )
    harness.reports.take_in(message({DESTINATION: "10.0.0.1:8000"}, namespace="envoy.other"))
    harness.reports.take_in(pb.StreamAccessLogsMessage())
    assert harness.late == []
    assert harness.outcome() is Outcome.BROKEN


async def test_over_a_real_stream() -> None:
    """Messages count as they come; the end of the stream is no error."""
    harness = ExchangeHarness()
    table: ServiceTable = {}
    harness.reports.add_to(table)
    async with (
        serving(table) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        method: grpc.aio.StreamUnaryMultiCallable[
            pb.StreamAccessLogsMessage, pb.StreamAccessLogsResponse
        ] = channel.stream_unary(
            STREAM_ACCESS_LOGS,
            request_serializer=pb.StreamAccessLogsMessage.SerializeToString,
            response_deserializer=pb.StreamAccessLogsResponse.FromString,
        )
        call = method()
        await call.write(message({DESTINATION: "10.0.0.1:8000"}))
        await eventually(lambda: harness.late)
        await call.write(message({DESTINATION: "10.0.0.1:8001"}))
        await call.done_writing()
        await call
    assert [address.port for address in harness.late] == [8000, 8001]


async def test_bytes_that_are_no_report_are_rejected_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not by a traceback."""
    table: ServiceTable = {}
    ExchangeHarness().reports.add_to(table)
    async with (
        serving(table) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        method: grpc.aio.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(
            STREAM_ACCESS_LOGS
        )
        call = method()
        await call.write(b"\xff\xff\xff")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    (record,) = logged(caplog)
    assert record.getMessage() == "access log stream: not a valid StreamAccessLogsMessage"


class UploadHarness:
    """Reports about requests to one server with one slot."""

    def __init__(self) -> None:
        self.fleet = SmallFleet(1)
        self.registry = ExchangeRegistry()
        late: list[Address] = []
        bypasses: list[float] = []
        self.reports = AccessLog(
            self.registry, late.append, bypasses.append, lambda: self.fleet.now
        )

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
        report = message({"x-coxswain-exchange": exchange.id})
        (entry,) = report.http_logs.log_entry
        entry.common_properties.intermediate_log_entry = True
        entry.request.request_body_bytes = body_bytes
        if is_whole:
            entry.common_properties.time_to_last_rx_byte.FromSeconds(1)
        self.reports.take_in(report)


async def test_the_same_number_for_30_s_is_a_client_that_stopped() -> None:
    """It is rejected once, and its slot is free for others."""
    harness = UploadHarness()
    exchange, hand = harness.ask()
    for body_bytes in (10, 20, 20, 20, 20):
        await harness.tell(exchange, body_bytes)
    assert [envoy.rejection(answer) for answer in hand.sent] == [(408, "upload-stalled")]
    record = exchange.end(harness.fleet.now)
    assert record.reason is not None and record.reason.value == "upload-stalled"
    assert record.outcome is Outcome.BROKEN


async def test_who_goes_on_is_left_alone() -> None:
    """However slowly; nor does it matter how long a whole request waits for its answer."""
    harness = UploadHarness()
    exchange, hand = harness.ask()
    for body_bytes in (10, 11, 12):
        await harness.tell(exchange, body_bytes)
    for _ in range(3):
        await harness.tell(exchange, 12, is_whole=True)
    assert hand.sent == []


async def test_who_is_slow_while_others_wait_gives_its_slot_to_them() -> None:
    """It is rejected with the rate that was wanted; the next in the queue is a whole request."""
    harness = UploadHarness()
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
    harness = UploadHarness()
    answered, first = harness.ask()
    waiting, second = harness.ask()
    answered.feed(envoy.response_headers(), harness.fleet.now)
    for exchange in (answered, waiting):
        for _ in range(3):
            await harness.tell(exchange, 10)
    assert first.sent == second.sent == []


async def test_a_report_of_nobody_known_is_passed_over() -> None:
    """Nor is one without our metadata an error."""
    harness = UploadHarness()
    exchange, hand = harness.ask()
    harness.registry.leave(RunningStream(exchange, hand, NoOwner(lambda: harness.fleet.now)))
    for _ in range(2):
        await harness.tell(exchange, 10)
        odd = message({}, namespace="envoy.other")
        odd.http_logs.log_entry[0].common_properties.intermediate_log_entry = True
        harness.reports.take_in(odd)
    assert hand.sent == []
