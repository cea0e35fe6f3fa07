"""Claims about extproc/stream/running_stream.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from extproc import header_names
from extproc.core.exchange_registry import ExchangeState
from extproc.security.known_keys import KnownKeys, digest_of
from extproc.stream.exchange import Exchange, ExchangeOptions
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.running_stream import RunningStream
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall, NoOwner, Rig, eventually
from tests.fakes.small_fleet import SmallFleet


def running(fleet: SmallFleet) -> tuple[RunningStream, HandCall]:
    hand = HandCall()
    exchange = Exchange(fleet.dispatcher, ExchangeOptions(), fleet.now)
    exchange.feed(envoy.request_headers(), fleet.now)
    exchange.take_reply()
    return RunningStream(exchange, hand, NoOwner(lambda: fleet.now)), hand


async def test_a_stream_that_is_cancelled() -> None:
    """The refusal goes out once, however often it is asked for."""
    fleet = SmallFleet(1)
    stream, hand = running(fleet)
    assert stream.id == stream.exchange.id
    assert stream.snapshot(fleet.now).state is ExchangeState.RUNNING
    stream.cancel(fleet.now)
    stream.cancel(fleet.now)
    assert [envoy.rejection(answer) for answer in hand.sent] == [(503, "cancelled")]


async def test_a_cancel_that_crosses_the_end() -> None:
    """The operator hears of no error of ours: the exchange is over, as was wished."""
    fleet = SmallFleet(1)
    stream, hand = running(fleet)
    hand.is_over = True
    stream.cancel(fleet.now)
    assert hand.sent == []


async def test_a_report_reaches_the_exchange() -> None:
    """An event stream that Envoy reported is a broken one."""
    fleet = SmallFleet(1)
    stream, _ = running(fleet)
    answer = envoy.response_headers(content_type="text/event-stream")
    stream.exchange.feed(answer, fleet.now)
    stream.break_off()
    assert stream.exchange.end(fleet.now).outcome.value == "broken"


async def test_who_waits_with_a_revoked_key_is_rejected() -> None:
    """In the queue, and where the body still comes; not who has its server, nor who has another
    key of the same client."""
    keys = KnownKeys({digest_of("sk-1"): "web", digest_of("sk-2"): "web"})
    picker = Rig(SmallFleet(1), ExchangeOptions(keys=keys))
    request = envoy.request_headers(authorization="Bearer sk-1")
    running, queued = picker.by_hand(), picker.by_hand()
    for call in (running, queued):
        call.say(request)
    reading = picker.by_hand()
    reading.say(envoy.with_body(envoy.request_headers(authorization="Bearer sk-1")))
    other = picker.by_hand()
    other.say(envoy.request_headers(authorization="Bearer sk-2"))
    keys.replace({digest_of("sk-2"): "web"})
    for stream in list(picker.registry):
        stream.check_key(picker.fleet.now)
        stream.check_key(picker.fleet.now)
    await asyncio.sleep(0)
    for call in (queued, reading):
        assert envoy.rejection(call.sent[-1]) == (401, "invalid-api-key")
    assert len(running.sent) == 1 and picker.leased == 1
    assert picker.in_queue == 1 and not other.sent[-1].HasField("immediate_response")


async def streaming() -> tuple[Rig, list[HandCall], HandCall]:
    """Two event streams flow from the only server, which shows two slots, and a request waits."""
    picker = Rig(SmallFleet(2), ExchangeOptions())
    flowing = [picker.by_hand() for _ in range(2)]
    for call in flowing:
        call.say(envoy.request_headers())
        call.say(envoy.response_headers(content_type="text/event-stream"))
    waiting = picker.by_hand()
    waiting.say(envoy.request_headers())
    picker.fleet.now += 0.5
    picker.fleet.scrape(picker.fleet.addresses[0], busy=2)
    assert picker.in_queue == 1
    return picker, flowing, waiting


@pytest.mark.parametrize(
    "lose",
    [HandCall.lose, lambda call: call.say(envoy.unknown_kind())],
    ids=["its connection is cut", "it says what nobody understands"],
)
async def test_a_response_that_flows_without_the_picker_keeps_its_slot(
    lose: Callable[[HandCall], None],
) -> None:
    """Until a scrape shows the slot free: Envoy passes the response on."""
    picker, flowing, waiting = await streaming()
    for call in flowing:
        lose(call)
    await asyncio.sleep(0)
    assert (len(picker.records), len(waiting.sent), picker.in_queue) == (2, 1, 1)
    [address] = picker.fleet.addresses
    picker.fleet.now += 1.0
    picker.fleet.scrape(address, busy=2)
    assert picker.leased == 2
    picker.fleet.now += 1.0
    picker.fleet.scrape(address, busy=0)
    await asyncio.sleep(0)
    assert envoy.destination(waiting.sent[1])
    assert picker.leased == 1


async def test_a_response_that_envoy_reported_as_complete_has_ended() -> None:
    """Its slot is free for the next at once. A reset alone may also be a client that left."""
    picker, flowing, waiting = await streaming()
    flowing[1].reset()
    await asyncio.sleep(0)
    assert len(waiting.sent) == 1 and picker.leased == 2
    [stream] = [one for one in picker.registry if one.lease is not None]
    stream.complete()
    flowing[0].reset()
    await asyncio.sleep(0)
    assert envoy.destination(waiting.sent[1])
    assert picker.leased == 2


@pytest.mark.parametrize("end", [HandCall.reset, HandCall.half_close], ids=["reset", "half-closed"])
async def test_a_report_may_come_just_behind_the_end(end: Callable[[HandCall], None]) -> None:
    """As Envoy sends it if the whole response was there with our reply to its headers."""
    picker, flowing, waiting = await streaming()
    picker.has_reports = True
    [first, _] = list(picker.registry)[:2]
    end(flowing[0])
    await asyncio.sleep(0)
    assert (len(waiting.sent), picker.records, first.is_over) == (1, [], False)
    first.complete()
    first.reported()
    await asyncio.sleep(0)
    assert envoy.destination(waiting.sent[1])
    assert [record.outcome.value for record in picker.records] == ["served"]
    first.reported()
    assert len(picker.records) == 1
    [address] = picker.fleet.addresses
    assert [lease.is_draining for lease in picker.fleet.account(address).leases.values()] == [
        False,
        False,
    ]


async def test_a_report_is_not_waited_for_for_ever() -> None:
    """Nor where none is to be expected: what its client read to the end, nobody can tell."""
    picker, flowing, waiting = await streaming()
    picker.has_reports = True
    flowing[0].reset()
    assert picker.records == []
    await eventually(lambda: picker.records)
    flowing[1].lose()
    assert len(picker.records) == 2 and len(waiting.sent) == 1
    [address] = picker.fleet.addresses
    assert all(lease.is_draining for lease in picker.fleet.account(address).leases.values())


async def test_who_is_cut_off_while_a_report_is_awaited_drains() -> None:
    picker, flowing, _ = await streaming()
    picker.has_reports = True
    flowing[0].reset()
    [first, _] = list(picker.registry)[:2]
    first.cancel(picker.fleet.now)
    first.complete()
    first.reported()
    assert [record.outcome.value for record in picker.records] == ["broken"]
    [address] = picker.fleet.addresses
    assert any(lease.is_draining for lease in picker.fleet.account(address).leases.values())


async def test_a_request_that_is_on_its_way_without_the_picker_keeps_its_slot() -> None:
    """A scrape proves nothing that began when Envoy may not have sent it yet, though it would do
    for a client that left."""
    picker = Rig(SmallFleet(1), ExchangeOptions())
    call = picker.by_hand()
    call.say(envoy.request_headers())
    call.lose()
    picker.fleet.now += 0.3
    picker.fleet.scrape(picker.fleet.addresses[0], busy=0)
    assert picker.leased == 1
    picker.fleet.now += 1.0
    picker.fleet.scrape(picker.fleet.addresses[0], busy=0)
    assert picker.leased == 0


class Waiting:
    """One stream that waits for the only slot, which `serve` hands to it."""

    def __init__(self) -> None:
        self.fleet = SmallFleet(1)
        self.left: list[RunningStream] = []
        self.pending = PendingStreams()
        self.fleet.listener.on_settled = self.pending.settled
        self._lease = self.fleet.pick()
        self.hand = HandCall()
        self.hand.open(self._open)
        self.hand.say(envoy.request_headers())
        assert len(self.hand.sent) == 1, "the request to wait"

    def _open(self, call: object) -> RunningStream:
        exchange = Exchange(self.fleet.dispatcher, ExchangeOptions(), self.fleet.now)
        assert isinstance(call, HandCall)
        self.stream = RunningStream(exchange, call, self)
        return self.stream

    def clock(self) -> float:
        return self.fleet.now

    def wait(self, stream: RunningStream) -> None:
        assert stream.exchange.ticket is not None
        self.pending.enter(stream, stream.exchange.ticket)

    def await_report(self, stream: RunningStream) -> bool:
        assert stream is self.stream
        return False

    def await_upload(self, stream: RunningStream) -> bool:
        assert stream is self.stream
        return False

    def leave(self, stream: RunningStream) -> None:
        self.left.append(stream)
        stream.exchange.end(self.fleet.now)

    def serve(self) -> None:
        self.fleet.finish(self._lease)

    @property
    def leases(self) -> object:
        return self.fleet.account(self.fleet.addresses[0]).leases


async def test_the_end_of_a_wait_is_told_in_the_next_turn() -> None:
    """The exchange owns its lease at once; the call that settled it is somebody else's."""
    waiting = Waiting()
    waiting.serve()
    assert waiting.stream.lease is not None
    assert len(waiting.hand.sent) == 1
    await asyncio.sleep(0)
    assert envoy.destination(waiting.hand.sent[1]) == ["10.0.0.1:8000"]


async def test_who_leaves_between_the_settlement_and_the_next_turn() -> None:
    """It is sent nowhere, and its slot is free at once."""
    waiting = Waiting()
    waiting.serve()
    waiting.hand.reset()
    assert waiting.left == [waiting.stream]
    assert waiting.leases == {}
    await asyncio.sleep(0)
    assert len(waiting.hand.sent) == 1


async def test_what_is_said_meanwhile_is_read_after_the_wait() -> None:
    """Nothing is read for a request that waits."""
    waiting = Waiting()
    waiting.hand.say(envoy.body(b"{}"))
    assert not waiting.hand.is_read()
    waiting.serve()
    await asyncio.sleep(0)
    assert waiting.hand.is_read()
    assert [one.WhichOneof("response") for one in waiting.hand.sent[1:]] == [
        "request_headers",
        "request_body",
    ]


async def test_a_settlement_that_cannot_be_told_ends_the_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the error, and what the exchange owned is given back."""
    waiting = Waiting()
    waiting.stream.exchange._reader.request = None  # what the destination is made of
    waiting.serve()
    await asyncio.sleep(0)
    assert waiting.hand.status == (13, "the endpoint picker failed")
    assert waiting.left == [waiting.stream]
    assert "failed; Envoy continues without the picker" in caplog.text


class Uploading(NoOwner):
    """A stream whose request has its server before its body is whole; Envoy reports on it."""

    def __init__(self, *, has_reports: bool = True) -> None:
        self.fleet = SmallFleet(1)
        super().__init__(lambda: self.fleet.now)
        self.hand, self.left, self.awaited = HandCall(), 0, 0
        self._has_reports = has_reports
        self.hand.open(self._open)
        self.hand.say(envoy.with_body(envoy.request_headers()))
        self.hand.say(envoy.body(b'{"prompt":', end_of_stream=False))
        assert header_names.DESTINATION in str(self.hand.sent[-1])

    def _open(self, call: object) -> RunningStream:
        assert isinstance(call, HandCall)
        exchange = Exchange(self.fleet.dispatcher, ExchangeOptions(), self.fleet.now)
        self.stream = RunningStream(exchange, call, self)
        return self.stream

    def await_upload(self, stream: RunningStream) -> bool:
        assert stream is self.stream
        self.awaited += 1
        return self._has_reports

    def leave(self, stream: RunningStream) -> None:
        self.left += 1
        stream.exchange.end(self.fleet.now)

    def reports(self, *, is_whole: bool = False) -> None:
        assert self.stream.upload_reported(10, self.fleet.now, is_whole=is_whole) is None


def test_a_lost_stream_keeps_its_slot_until_the_body_is_whole() -> None:
    """However long that takes, as long as Envoy reports on it."""
    upload = Uploading()
    upload.hand.lose()
    for _ in range(3):
        upload.reports()
        upload.stream.upload_silent()
        assert upload.left == 0 and not upload.stream.is_over
    upload.reports(is_whole=True)
    assert upload.left == 1 and upload.awaited == 4
    upload.stream.upload_silent()
    assert upload.left == 1


def test_nobody_reports_on_the_body_of_a_lost_stream() -> None:
    silent, unreported = Uploading(), Uploading(has_reports=False)
    silent.hand.lose()
    assert silent.left == 0
    silent.stream.upload_silent()
    assert silent.left == 1
    unreported.hand.lose()
    assert unreported.left == 1


@pytest.mark.parametrize("end", ["reset", "answered", "cancelled"])
def test_no_body_is_awaited_of_a_stream_that_was_not_lost(end: str) -> None:
    """Its client has left, or its response has begun, or an operator has cut it off."""
    upload = Uploading()
    if end == "answered":
        upload.hand.say(envoy.response_headers())
    if end == "cancelled":
        upload.stream.cancel(upload.fleet.now)
    upload.hand.reset() if end == "reset" else upload.hand.lose()
    assert (upload.left, upload.awaited) == (1, 0)
