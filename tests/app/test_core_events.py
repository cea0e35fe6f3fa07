"""Claims about extproc/app/core_events.py, with the real core and waiting room."""

from __future__ import annotations

import logging

import pytest

from extproc.app.core_events import CoreEvents
from extproc.core.address import Address
from extproc.core.fleet.endpoint import Intent
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.slots.lease import LeaseEnd
from extproc.stream.exchange import Exchange, ExchangeOptions, Stage
from extproc.stream.pending_streams import PendingStreams
from extproc.stream.running_stream import RunningStream
from tests.fakes import envoy_messages as envoy
from tests.fakes.envoy_stream import HandCall, NoOwner
from tests.fakes.small_fleet import SmallFleet


class Shell:
    """The core's surroundings, as the service puts them together."""

    def __init__(self, *slots: int) -> None:
        self.fleet = SmallFleet(*slots)
        self.pending = PendingStreams()
        self.wakes: list[float] = []
        self.scraped: list[Address] = []
        self.membership_changes = 0
        CoreEvents(
            self.fleet.dispatcher,
            self.pending,
            lambda: self.fleet.now,
            wake_at=self.wakes.append,
            scrape=self.scraped.append,
            membership_changed=self._changed,
        ).listen()

    def _changed(self) -> None:
        self.membership_changes += 1
        raise RuntimeError("discovery is broken")

    def waiting(self) -> RunningStream:
        exchange = Exchange(self.fleet.dispatcher, ExchangeOptions(), self.fleet.now)
        exchange.feed(envoy.request_headers(), self.fleet.now)
        assert exchange.ticket is not None
        stream = RunningStream(exchange, HandCall(), NoOwner(lambda: self.fleet.now))
        self.pending.enter(stream, exchange.ticket)
        return stream


async def test_a_released_slot_goes_to_the_stream_that_waits() -> None:
    """In the same call."""
    shell = Shell(1)
    lease = shell.fleet.pick()
    stream = shell.waiting()
    shell.fleet.finish(lease)
    assert stream.exchange.stage is Stage.LEASED and not shell.pending


async def test_whose_stream_is_gone_gives_its_lease_back() -> None:
    """And the next in the queue gets the slot at once, though that is an event of an event."""
    shell = Shell(1)
    lease = shell.fleet.pick()
    gone, waiting = shell.waiting(), shell.waiting()
    assert gone.ticket is not None
    shell.pending.leave(gone.ticket)
    shell.fleet.finish(lease)
    assert waiting.exchange.stage is Stage.LEASED
    assert shell.fleet.account(shell.fleet.addresses[0]).leased_slots == 1
    assert shell.fleet.dispatcher.faults(shell.fleet.now) == []


async def test_a_client_that_leaves_has_its_endpoint_scraped() -> None:
    """And the core is woken when its slot counts as free."""
    shell = Shell(1)
    shell.fleet.abandon(shell.fleet.pick())
    assert shell.scraped == [shell.fleet.addresses[0]]
    assert shell.wakes[-1] <= shell.fleet.now + 10.0


async def test_an_ejection_and_its_end_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A warning that says what to do, and a line when it is over."""
    caplog.set_level(logging.INFO, logger="coxswain.core")
    shell = Shell(4, 4)
    dispatcher, bad = shell.fleet.dispatcher, shell.fleet.addresses[0]
    for lease in [shell.fleet.pick() for _ in range(8)]:
        if lease.address == bad:
            dispatcher.failed(lease, Fault.RESET, shell.fleet.now)
        dispatcher.release(lease, LeaseEnd.SERVED, shell.fleet.now)
    [warning] = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert f"endpoint {bad}: ejected: 3 requests in a row lost" in warning.getMessage()
    assert "read its log" in warning.getMessage()
    shell.fleet.now += 2.0
    dispatcher.advance(shell.fleet.now)
    for _ in range(2):
        shell.fleet.finish(shell.fleet.pick())
    assert caplog.messages[-1] == f"endpoint {bad}: readmitted; it is on probation"


@pytest.mark.breaks_books
async def test_an_event_that_fails_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; whoever called the core hears nothing of it."""
    shell = Shell(1)
    shell.fleet.dispatcher.set_intent(shell.fleet.addresses[0], Intent.DRAINING, shell.fleet.now)
    shell.fleet.abandon(shell.fleet.dispatcher.ledger.open(shell.fleet.addresses[0], 1, 100.0))
    assert shell.membership_changes == 1 and shell.scraped
    assert "handling the event MembershipChanged of the core failed" in caplog.text


@pytest.mark.breaks_books
async def test_a_step_that_failed_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its slot is free all the same."""
    shell = Shell(1)
    lease = shell.fleet.pick()

    def fail(*_: object) -> None:
        raise RuntimeError("a bug in learning")

    monkeypatch.setattr(shell.fleet.dispatcher.state.model_loads, "released", fail)
    shell.fleet.finish(lease)
    assert shell.fleet.account(shell.fleet.addresses[0]).free_slots == 1
    assert "learning from a request's end failed; the ledger is consistent" in caplog.text
