"""Claims about steps of the core that fail: each decision stands, and the state is consistent.

Such a failure is a bug. Here one part of the state is broken on purpose, which the repair after the
call or the next call does not need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extproc.core.client_limits import ClientLimit
from extproc.core.decision import Picked
from extproc.core.events import Event, Settled, StepFailed
from extproc.core.objective import Objective
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.rejection import Rejected
from extproc.core.request import Request
from extproc.core.scheduler.takeover import HeldLease
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.slots.lease import LeaseEnd, LeaseState
from tests.fakes.steered_fleet import SteeredFleet

SLO = Objective(name="chat", queue_s=1.0)


class Broken(SteeredFleet):
    """Remembers the events of the core, and breaks parts of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *slots: int, **options: Any) -> None:
        super().__init__(SLO, **options)
        self._monkeypatch = monkeypatch
        for count in slots:
            self.add(count)
        self.events: list[Event] = []
        self.dispatcher.on_events(lambda: self.events.extend(self.dispatcher.take_events()))

    def break_(self, owner: object, name: str) -> None:
        """That function raises from now on."""

        def broken(*_: object, **__: object) -> None:
            raise ArithmeticError(name)

        self._monkeypatch.setattr(owner, name, broken)

    def repair(self) -> None:
        self._monkeypatch.undo()

    @property
    def failed_steps(self) -> list[str]:
        return [event.step for event in self.events if isinstance(event, StepFailed)]

    def settled(self) -> dict[int, object]:
        """The settlements by ticket."""
        return {e.ticket.id: e.settlement for e in self.events if isinstance(e, Settled)}

    def assert_consistent(self) -> None:
        assert self.dispatcher.faults(self.now) == []


def test_a_pick_that_cannot_be_recorded_is_a_pick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease is open: without a `Picked` nobody would release it."""
    fleet = Broken(monkeypatch, 1)
    fleet.break_(fleet.dispatcher.state.feedback, "record_prediction")
    lease = fleet.pick()
    assert fleet.failed_steps == ["recording a pick"]
    fleet.assert_consistent()
    fleet.repair()
    fleet.finish(lease)
    fleet.pick()


def test_a_ticket_is_settled_even_if_it_cannot_be_taken_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Broken(monkeypatch, 1)
    fleet.pick()
    ticket = fleet.queue(timeout_s=5.0)
    fleet.break_(fleet.dispatcher.state.affinity_waits, "left")
    fleet.now += 5.0
    fleet.dispatcher.advance(fleet.now)
    assert "taking a ticket out of the queue" in fleet.failed_steps
    assert isinstance(fleet.settled()[ticket.id], Rejected)
    fleet.assert_consistent()


@pytest.mark.parametrize(
    ("part", "name", "step"),
    [
        ("rankings", "at", "explaining a timeout"),
        ("in_flight", "rejected", "recording a rejection"),
    ],
)
def test_a_deadline_ends_the_wait_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, part: str, name: str, step: str
) -> None:
    fleet = Broken(monkeypatch, 1)
    fleet.pick()
    ticket = fleet.queue(timeout_s=5.0, objective="chat")
    fleet.break_(getattr(fleet.dispatcher.state, part), name)
    fleet.now += 5.0
    fleet.dispatcher.advance(fleet.now)
    assert step in fleet.failed_steps
    rejected = fleet.settled()[ticket.id]
    assert isinstance(rejected, Rejected) and rejected.reason.value == "queue-timeout"
    fleet.assert_consistent()


def test_a_rejection_without_a_forecast_says_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Broken(monkeypatch, 1, queue_max_requests=0)
    fleet.pick()
    fleet.break_(fleet.dispatcher._allocator.forecast, "behind_all")
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected) and outcome.retry_after_s == 1.0
    assert fleet.failed_steps == ["forecasting the time of a retry"]


def test_a_multi_slot_request_that_cannot_be_placed_is_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Broken(monkeypatch, 2)
    lease = fleet.pick()
    fleet.break_(fleet.dispatcher._allocator, "find_capacity")
    ticket = fleet.queue(weight_slots=2)
    assert fleet.failed_steps == ["placing a queued request"]
    fleet.assert_consistent()
    fleet.repair()
    fleet.finish(lease)
    assert isinstance(fleet.settled()[ticket.id], Picked)


def test_a_slot_is_free_even_if_it_cannot_be_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next change assigns it."""
    fleet = Broken(monkeypatch, 1)
    lease = fleet.pick()
    ticket = fleet.queue()
    fleet.break_(fleet.dispatcher._allocator._discipline, "next_ticket")
    fleet.finish(lease)
    assert fleet.failed_steps == ["assigning free slots"] and ticket.is_waiting
    fleet.assert_consistent()
    fleet.repair()
    fleet.scrape(fleet.addresses[0], slots=1, busy_slots=0)
    assert isinstance(fleet.settled()[ticket.id], Picked)


def test_a_slot_is_free_whatever_its_request_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Broken(monkeypatch, 1)
    lease = fleet.pick()
    fleet.break_(fleet.dispatcher.state.feedback, "on_completion")
    fleet.finish(lease)
    assert fleet.failed_steps == ["learning from a request's end"]
    assert lease.state is LeaseState.CLOSED
    fleet.assert_consistent()
    fleet.repair()
    fleet.pick()


def test_a_lease_has_moved_whatever_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Broken(monkeypatch, 1, 1)
    lease = fleet.pick()
    other = next(one for one in fleet.addresses if one != lease.address)
    fleet.break_(fleet.dispatcher.state.feedback, "record_prediction")
    fleet.dispatcher.responded(lease, fleet.now, served=other, has_headers=False)
    assert fleet.failed_steps == ["learning from a fallback"] and lease.address == other
    fleet.assert_consistent()


def test_the_slots_of_a_scrape_count_whatever_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Broken(monkeypatch, 1)
    address = fleet.addresses[0]
    fleet.break_(fleet.dispatcher.state.feedback, "on_observation")
    fleet.scrape(address, slots=3, busy_slots=0)
    assert fleet.failed_steps == ["learning from an observation"]
    fleet.repair()
    for _ in range(3):
        fleet.pick()


def test_a_request_that_cannot_be_queued_is_in_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets the exception, and may answer the client."""
    fleet = Broken(monkeypatch, 1)
    lease = fleet.pick()
    fleet.break_(fleet.dispatcher.queue, "_queue")
    with pytest.raises(ArithmeticError):
        fleet.submit()
    fleet.repair()
    fleet.dispatcher.rebuild(fleet.now)
    fleet.assert_consistent()
    assert not fleet.dispatcher.queue
    fleet.finish(lease)
    fleet.pick()


def test_a_lease_that_cannot_be_opened_takes_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Broken(monkeypatch, 1)
    fleet.break_(EndpointSlots, "add")
    with pytest.raises(ArithmeticError):
        fleet.submit()
    fleet.repair()
    fleet.dispatcher.rebuild(fleet.now)
    fleet.assert_consistent()
    fleet.pick()


def spoil_tickets(fleet: SteeredFleet) -> None:
    fleet.dispatcher.queue.body_bytes += 7


def spoil_waiting(fleet: SteeredFleet) -> None:
    next(iter(fleet.dispatcher.queue)).is_waiting = False


def spoil_criticalities(fleet: SteeredFleet) -> None:
    for tickets in fleet.dispatcher.queue._by_criticality.values():
        tickets.clear()


def spoil_leased(fleet: SteeredFleet) -> None:
    fleet.dispatcher.ledger.endpoint_slots(fleet.addresses[0]).leased_slots += 1


def spoil_address(fleet: SteeredFleet) -> None:
    next(iter(fleet.dispatcher.view.leases())).address = fleet.addresses[1]


def spoil_closed(fleet: SteeredFleet) -> None:
    next(iter(fleet.dispatcher.view.leases())).state = LeaseState.CLOSED


def spoil_lost(fleet: SteeredFleet) -> None:
    fleet.dispatcher.ledger._leases.clear()


def spoil_drain(fleet: SteeredFleet) -> None:
    next(iter(fleet.dispatcher.view.leases())).left_at = -1e6


def spoil_flows(fleet: SteeredFleet) -> None:
    next(iter(fleet.dispatcher.queue)).flow.waiting += 1


@pytest.mark.parametrize(
    "spoil",
    [
        *(spoil_tickets, spoil_waiting, spoil_criticalities, spoil_flows),
        *(spoil_leased, spoil_address, spoil_closed, spoil_lost),
    ],
)
def test_what_differs_is_found_and_repaired(spoil: Callable[[SteeredFleet], None]) -> None:
    """Leases and waiting tickets are the truth; all else is derived from them again."""
    fleet = SteeredFleet()
    fleet.add(1), fleet.add(1)
    leases = [fleet.pick(), fleet.pick()]
    for _ in range(2):
        fleet.queue(timeout_s=50.0, body_bytes=9)
    spoil(fleet)
    assert fleet.dispatcher.faults(fleet.now)
    fleet.dispatcher.rebuild(fleet.now)
    assert fleet.dispatcher.faults(fleet.now) == []
    assert all(fleet.dispatcher.ledger.endpoint_slots(one).slots == 1 for one in fleet.addresses)
    assert len(leases) == 2


def test_a_lease_that_drains_for_too_long_is_found() -> None:
    """Its cap was lost: nothing else would free its slot."""
    fleet = SteeredFleet()
    fleet.add(1)
    fleet.dispatcher.release(fleet.pick(), LeaseEnd.ABANDONED, fleet.now)
    spoil_drain(fleet)
    (fault,) = fleet.dispatcher.faults(fleet.now)
    assert "longer than its cap" in fault


def test_after_a_repair_everybody_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A multi-slot ticket lost its reservation and a ticket its affinity wait: both wait on."""
    fleet = Broken(monkeypatch, 2)
    leases = [fleet.pick() for _ in range(2)]
    tickets = [fleet.queue(weight_slots=2), fleet.queue()]
    fleet.finish(leases.pop())
    fleet.dispatcher.rebuild(fleet.now)
    fleet.assert_consistent()
    fleet.finish(leases.pop())
    fleet.assert_consistent()
    picked = fleet.settled()[tickets[0].id]
    assert isinstance(picked, Picked)
    fleet.finish(picked.lease)
    assert isinstance(fleet.settled()[tickets[1].id], Picked)


def test_an_adopted_lease_counts_whatever_cannot_be_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end is no sample then, and frees its slot all the same."""
    fleet = Broken(monkeypatch, 1)
    [address] = fleet.addresses
    fleet.break_(fleet.dispatcher.state.in_flight, "begin")
    held = HeldLease(address, 1, 1, None, opened_at=90.0, waited_s=2.0)
    picked = fleet.dispatcher.adopt(held, Request(id="r", timeout_s=60.0), fleet.now)
    assert picked is not None and fleet.failed_steps == ["adopting a lease"]
    waiting = fleet.queue()
    fleet.repair()
    fleet.assert_consistent()
    fleet.dispatcher.release(picked.lease, LeaseEnd.SERVED, fleet.now)
    assert isinstance(fleet.settled()[waiting.id], Picked)
    fleet.assert_consistent()


def test_a_queued_request_of_known_size_is_picked_whatever_cannot_be_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its size is then not compared with the time that it took."""
    fleet = Broken(monkeypatch, 1, order=QueueOrder(discipline=Discipline.SHORTEST_EXPECTED))
    lease = fleet.pick()
    ticket = fleet.queue()
    ticket.expected_slot_s = 5.0
    fleet.break_(fleet.dispatcher.state.in_flight, "begin")
    fleet.finish(lease)
    settlement = fleet.settled()[ticket.id]
    assert isinstance(settlement, Picked)
    fleet.repair()
    fleet.finish(settlement.lease)
    fleet.assert_consistent()


@pytest.mark.parametrize("is_served", [False, True])
def test_a_session_that_lets_in_a_request_without_finding_it_a_slot(
    monkeypatch: pytest.MonkeyPatch, is_served: bool
) -> None:
    """The request that ended has ended, and the next change of capacity assigns the slot."""
    fleet = Broken(monkeypatch, 2)
    limits = {"*": ClientLimit(per_session=1)}
    fleet.dispatcher.renew(replace(fleet.dispatcher.options, client_limits=limits), fleet.now)
    other = fleet.pick()
    running = fleet.pick(session_id="s")
    fleet.finish(running)
    heavy = fleet.queue(session_id="s", weight_slots=2)
    held = fleet.queue(session_id="s")
    assert held.held_by is not None
    fleet.break_(fleet.dispatcher.state.queue, "let_in")
    if is_served:
        fleet.finish(other)
        picked = fleet.settled()[heavy.id]
        assert isinstance(picked, Picked)
        fleet.finish(picked.lease)
    else:
        heavy.reserved_at = None
        fleet.dispatcher.withdraw(heavy, fleet.now)
    assert fleet.failed_steps
    fleet.repair()
    fleet.assert_consistent()
    fleet.scrape(fleet.addresses[0], slots=2, busy_slots=0)
    assert not held.is_waiting
