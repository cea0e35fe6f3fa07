"""Claims about extproc/app/auditor.py: each test breaks the books on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from extproc.app import auditor as auditor_module
from extproc.app.auditor import Auditor
from extproc.app.core_events import CoreEvents
from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.rejection import Reason
from extproc.core.slots.lease import Lease, LeaseState
from extproc.stream.exchange import Exchange, ExchangeOptions, Stage
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.running_stream import RunningStream
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall, NoOwner
from tests.fakes.small_fleet import SmallFleet

pytestmark = pytest.mark.breaks_books


class Picker:
    """The core with its streams, and an auditor that is called by hand."""

    def __init__(self, *slots: int, limits: ClientLimits | None = None) -> None:
        self.fleet = SmallFleet(*slots)
        self.pending = PendingStreams()
        self.registry = ExchangeRegistry()
        CoreEvents(
            self.fleet.dispatcher,
            self.pending,
            lambda: self.fleet.now,
            wake_at=lambda _: None,
            scrape=lambda _: None,
            membership_changed=lambda: None,
        ).listen()
        self.auditor = Auditor(
            *(self.fleet.dispatcher, self.registry, self.pending, lambda: self.fleet.now),
            limits or ClientLimits({}),
        )

    def stream(self) -> RunningStream:
        """A request that was picked or waits."""
        exchange = Exchange(self.fleet.dispatcher, ExchangeOptions(), self.fleet.now)
        exchange.feed(envoy.request_headers(), self.fleet.now)
        stream = RunningStream(exchange, HandCall(), NoOwner(lambda: self.fleet.now))
        self.registry.enter(stream)
        if exchange.ticket is not None:
            self.pending.enter(stream, exchange.ticket)
        return stream

    def corrected(self) -> dict[str, int]:
        """What two audits in a row corrected; a third finds nothing."""
        for _ in range(2):
            self.fleet.now += 1.0
            self.auditor.audit(self.fleet.now)
            self.fleet.dispatcher.advance(self.fleet.now)
        assert self.auditor.audit(self.fleet.now) == []
        return {kind: count for kind, count in self.auditor.corrections().items() if count}


async def test_whole_books_need_nothing() -> None:
    """Running, waiting, abandoned and ended requests, and a heavy one with reserved slots."""
    picker = Picker(2, 1)
    streams = [picker.stream() for _ in range(5)]
    assert picker.corrected() == {}
    streams[0].exchange.end(picker.fleet.now)
    picker.registry.leave(streams[0])
    assert picker.corrected() == {}


async def test_a_lease_that_no_request_owns() -> None:
    """Its slots go to the queue once they are shown free; found once it counts as nothing yet."""
    picker = Picker(1)
    picker.fleet.pick()
    waiting = picker.stream()
    assert len(picker.auditor.audit(picker.fleet.now)) == 1
    assert picker.corrected() == {"lease": 1}
    picker.fleet.now += 1.0
    picker.fleet.scrape(picker.fleet.addresses[0])
    assert waiting.exchange.stage is Stage.LEASED


async def test_a_ticket_that_no_stream_waits_for() -> None:
    """It leaves the queue."""
    picker = Picker(1)
    picker.fleet.pick()
    picker.fleet.queue()
    assert picker.corrected() == {"lease": 1, "ticket": 1}
    assert len(picker.fleet.dispatcher.queue) == 0


async def test_a_stream_whose_ticket_left_the_queue() -> None:
    """It is rejected, in words that name whose fault it is."""
    picker = Picker(1)
    running, waiting = picker.stream(), picker.stream()
    assert waiting.ticket is not None
    picker.fleet.dispatcher.withdraw(waiting.ticket, picker.fleet.now)
    assert picker.corrected() == {"stream": 1}
    reply = waiting.exchange.take_reply()
    assert reply is not None and reply.immediate_response.status.code == 500
    assert waiting.exchange.end(picker.fleet.now).reason is Reason.INTERNAL_ERROR
    assert running.exchange.stage is Stage.LEASED


async def test_streams_that_are_over_or_hold_a_closed_lease() -> None:
    """They are forgotten, or have nothing to give back."""
    picker = Picker(2)
    over, robbed = picker.stream(), picker.stream()
    over.exchange.end(picker.fleet.now)
    assert robbed.lease is not None
    picker.fleet.finish(robbed.lease)
    assert robbed.lease.state is LeaseState.CLOSED
    assert picker.corrected() == {"stream": 2}
    robbed.exchange.end(picker.fleet.now)


def _miscount(picker: Picker) -> None:
    picker.fleet.account(picker.fleet.addresses[0]).leased_slots += 1


def _lose_from_account(picker: Picker) -> None:
    picker.fleet.account(picker.fleet.addresses[0]).leases.popitem()


def _lose_from_queue(picker: Picker) -> None:
    line = picker.fleet.dispatcher.queue
    line._take_out(next(iter(line)))


def _lose_deadline(picker: Picker) -> None:
    picker.fleet.dispatcher.queue._deadlines.pop()


def _keep_a_closed_lease(picker: Picker) -> None:
    lease = Lease(99, picker.fleet.addresses[1], 1, picker.fleet.now)
    lease.state = LeaseState.CLOSED
    picker.fleet.dispatcher.ledger._leases[99] = lease


@pytest.mark.parametrize(
    "break_it",
    [_miscount, _lose_from_account, _lose_from_queue, _lose_deadline, _keep_a_closed_lease],
)
async def test_books_that_do_not_fit_are_derived_again(break_it: Callable[[Picker], None]) -> None:
    """And the running and waiting requests end as if nothing had been."""
    picker = Picker(2, 1)
    streams = [picker.stream() for _ in range(5)]
    break_it(picker)
    assert picker.corrected().keys() == {"books"}
    for stream in streams:
        stream.exchange.end(picker.fleet.now)
        picker.registry.leave(stream)
    picker.fleet.now += 1.0
    for address, slots in zip(picker.fleet.addresses, (2, 1), strict=True):
        picker.fleet.scrape(address)
        assert picker.fleet.account(address).free_slots == slots
    assert not picker.fleet.dispatcher.queue


async def test_a_draining_lease_that_nothing_ends() -> None:
    """Its cap was lost: it is closed a little after it should have been."""
    picker = Picker(1)
    picker.fleet.abandon(picker.fleet.pick())
    picker.fleet.dispatcher.ledger._caps_due.clear()
    picker.fleet.now += 13.0
    assert picker.corrected() == {"books": 1}
    assert picker.fleet.account(picker.fleet.addresses[0]).leased_slots == 0


async def test_it_runs_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is stopped, also after an audit that failed."""
    monkeypatch.setattr(auditor_module, "INTERVAL_S", 0.01)
    picker = Picker(1)
    picker.fleet.pick()
    corrected = asyncio.Event()
    fails = [RuntimeError("a bug in the audit")]

    def audit(now: float) -> None:
        if fails:
            raise fails.pop()
        original(now)
        if picker.auditor.corrections()["lease"]:
            corrected.set()

    original = picker.auditor.audit
    monkeypatch.setattr(picker.auditor, "audit", audit)
    picker.auditor.start()
    await asyncio.wait_for(corrected.wait(), 60)
    picker.auditor.stop()
    picker.auditor.stop()
    assert not picker.auditor._audits.is_running


async def test_a_count_of_a_limit_that_no_request_owns() -> None:
    """A request that is there counts on."""
    limits = ClientLimits({"web": ClientLimit(requests=2)})
    picker = Picker(1, limits=limits)
    stream = picker.stream()
    for name in (stream.id, "gone"):
        assert limits.begin("web", name, 0.0) is None
    assert picker.corrected() == {"limit": 1}
    assert list(limits.held()) == [("web", stream.id)]
