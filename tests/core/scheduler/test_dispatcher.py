"""Claims about extproc/core/scheduler/dispatcher.py: requests."""

from __future__ import annotations

from collections import Counter

import pytest

from extproc.core.address import Address
from extproc.core.constraints import Constraints
from extproc.core.decision import Picked, Queued
from extproc.core.objective import Criticality, Objective
from extproc.core.observation import ScrapeStatus
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import HOLD_MARGIN_S, Request
from extproc.core.scheduler.takeover import Arrival
from extproc.core.slots.lease import LeaseError
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet

UNKNOWN = Address("10.9.9.9", 1)


# Picking


def test_the_largest_share_of_free_slots() -> None:
    """2 of 2 before 3 of 4, then 3 of 4 before 1 of 2."""
    fleet = SmallFleet(2, 4)
    small, large = fleet.addresses
    fleet.scrape(large, busy=1)
    assert [fleet.pick().address for _ in range(2)] == [small, large]


def test_pass_through_requests_need_no_slot() -> None:
    """They go to any serving endpoint, best first, also to full ones; to none if none serves."""
    fleet = SmallFleet(1, 1, 1, 1)
    for _ in range(4):
        fleet.pick()
    fleet.scrape(fleet.addresses[0], status=ScrapeStatus.UNREACHABLE, busy=None)
    assert len(fleet.dispatcher.passing()) == 3
    assert fleet.addresses[0] not in fleet.dispatcher.passing()
    assert SmallFleet().dispatcher.passing() == []


def test_a_pass_through_request_gets_the_best_allowed_endpoint() -> None:
    """Alternating between equals; a sleeping one only if there is no other."""
    fleet = SmallFleet(2, 2, 2, 2)
    _, asleep, *awake = fleet.addresses
    fleet.scrape(asleep, status=ScrapeStatus.ASLEEP)
    allowed = frozenset((asleep, *awake))
    first = Counter(fleet.dispatcher.passing(Constraints(allowed=allowed))[0] for _ in range(100))
    assert set(first) == set(awake) and min(first.values()) > 25
    assert fleet.dispatcher.passing(Constraints(allowed=frozenset({asleep}))) == [asleep]
    assert fleet.dispatcher.passing(Constraints(allowed=frozenset())) == []


# Waiting


def test_a_withdrawn_request_gets_nothing() -> None:
    """It leaves the queue, is never settled, and may be withdrawn once more."""
    fleet = SmallFleet(1)
    running = fleet.pick()
    ticket = fleet.queue()
    fleet.dispatcher.withdraw(ticket, fleet.now)
    fleet.dispatcher.withdraw(ticket, fleet.now)
    fleet.finish(running)
    assert fleet.listener.settlements == {}
    assert fleet.account(fleet.addresses[0]).leases == {}


def test_a_settled_request_is_not_cancelled() -> None:
    """An operator who cancels too late changes nothing."""
    fleet = SmallFleet(1)
    running = fleet.pick()
    ticket = fleet.queue()
    fleet.finish(running)
    fleet.dispatcher.cancel(ticket, fleet.now)
    fleet.dispatcher.withdraw(ticket, fleet.now)
    assert fleet.account(fleet.addresses[0]).leases == {
        fleet.handed(ticket).id: fleet.handed(ticket)
    }


def test_a_cancelled_request_is_settled() -> None:
    """Its client gets the reason, and how long it had waited."""
    fleet = SmallFleet(1)
    fleet.pick()
    ticket = fleet.queue()
    fleet.now += 3.0
    fleet.dispatcher.cancel(ticket, fleet.now)
    assert (fleet.rejected(ticket).reason, fleet.rejected(ticket).waited_s) == (
        Reason.CANCELLED,
        3.0,
    )


@pytest.mark.parametrize("queue_max_requests", [0, 1, 3])
def test_a_full_queue(queue_max_requests: int) -> None:
    """The bound is exact from 0 up, and has its own reason with status 429."""
    fleet = SmallFleet(1, queue_max_requests=queue_max_requests)
    fleet.pick()
    for _ in range(queue_max_requests):
        fleet.queue()
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected)
    assert (outcome.reason, outcome.waited_s) == (Reason.QUEUE_FULL, 0.0)


def test_a_free_slot_needs_no_queue() -> None:
    """Neither a queue of 0 nor a timeout of 0 rejects what can be served at once."""
    fleet = SmallFleet(1, queue_max_requests=0)
    assert isinstance(fleet.submit(timeout_s=0.0), Picked)


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_a_timeout_of_zero(timeout_s: float) -> None:
    """A request that may not wait is rejected at once, and leaves no ticket."""
    fleet = SmallFleet(1)
    fleet.pick()
    outcome = fleet.submit(timeout_s=timeout_s)
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.QUEUE_TIMEOUT
    assert len(fleet.dispatcher.queue) == 0


def test_deadlines_in_their_own_order() -> None:
    """The shortest timeout is rejected first, at its time; no slot is assigned to it."""
    fleet = SmallFleet(1)
    running = fleet.pick()
    patient, impatient = fleet.queue(timeout_s=9.0), fleet.queue(timeout_s=3.0)
    fleet.pass_time(2.999)
    assert fleet.listener.settlements == {}
    fleet.pass_time(0.001)
    rejected = fleet.rejected(impatient)
    assert (rejected.reason, rejected.waited_s) == (Reason.QUEUE_TIMEOUT, 3.0)
    fleet.finish(running)
    assert fleet.handed(patient).address == fleet.addresses[0]
    assert len(fleet.account(fleet.addresses[0]).leases) == 1


# Releasing


def test_a_release_happens_once() -> None:
    """The second is a bug of the caller; the next queued request does not profit from it."""
    fleet = SmallFleet(1)
    lease = fleet.pick()
    first, second = fleet.queue(), fleet.queue()
    fleet.finish(lease)
    with pytest.raises(LeaseError):
        fleet.finish(lease)
    assert set(fleet.listener.settlements) == {first.id}
    assert list(fleet.dispatcher.queue) == [second]


def test_an_abandoned_slot_is_free_once_a_scrape_proves_it() -> None:
    """Until then the next request waits; a scrape is requested at once."""
    fleet = SmallFleet(1)
    address = fleet.addresses[0]
    lease = fleet.pick()
    ticket = fleet.queue()
    fleet.abandon(lease)
    assert fleet.listener.unsure == [address]
    assert fleet.listener.settlements == {}
    assert fleet.dispatcher.view.needs_frequent_scrapes(address)
    fleet.now += 1.0
    fleet.scrape(address, busy=0)
    assert fleet.handed(ticket).address == address


def test_an_abandoned_slot_is_free_at_its_cap() -> None:
    """The timer wakes the dispatcher for it without any other event."""
    fleet = SmallFleet()
    ticket = fleet.queue(timeout_s=100.0)
    blind = fleet.add(1, busy=None)
    fleet.abandon(fleet.handed(ticket))
    waiting = fleet.queue(timeout_s=100.0)
    fleet.pass_time(0.999)
    assert waiting.is_waiting
    fleet.pass_time(0.001)
    assert fleet.handed(waiting).address == blind


def test_the_lease_follows_the_server() -> None:
    """The picked slot is free for the next request at once, and the other server's is leased."""
    fleet = SmallFleet(1, 1)
    lease = fleet.pick()
    picked, other = lease.address, next(a for a in fleet.addresses if a != lease.address)
    fleet.pick()
    ticket = fleet.queue()
    fleet.dispatcher.responded(lease, fleet.now, served=other, has_headers=False)
    assert fleet.handed(ticket).address == picked
    assert fleet.account(other).leased_slots == 2
    fleet.dispatcher.responded(lease, fleet.now, served=other, has_headers=False)
    assert fleet.account(other).leased_slots == 2
    fleet.finish(lease)
    assert fleet.account(other).leased_slots == 1


def test_a_server_outside_the_fleet_has_no_slots() -> None:
    """The lease stays where it was picked, and ends there."""
    fleet = SmallFleet(1)
    lease = fleet.pick()
    fleet.dispatcher.responded(lease, fleet.now, served=UNKNOWN, has_headers=False)
    assert lease.address == fleet.addresses[0]
    fleet.finish(lease)
    assert fleet.account(fleet.addresses[0]).leases == {}


def test_a_removed_endpoint_is_forgotten_when_its_last_lease_moves() -> None:
    """Its last lease is gone, though none was released."""
    fleet = SmallFleet(1, 1)
    lease = fleet.pick()
    picked, other = lease.address, next(a for a in fleet.addresses if a != lease.address)
    fleet.name(other)
    assert picked in fleet.dispatcher.fleet
    fleet.dispatcher.responded(lease, fleet.now, served=other, has_headers=False)
    assert picked not in fleet.dispatcher.fleet


# Shutting down


def test_closing_rejects_all_requests() -> None:
    """Queued requests and arrivals are rejected as we shut down; running requests continue."""
    fleet = SmallFleet(1)
    lease = fleet.pick()
    tickets = [fleet.queue() for _ in range(2)]
    fleet.now += 2.0
    fleet.dispatcher.close(fleet.now)
    for ticket in tickets:
        assert fleet.rejected(ticket).reason is Reason.SHUTTING_DOWN
        assert fleet.rejected(ticket).waited_s == 2.0
    fleet.finish(lease)
    outcome = fleet.submit()
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.SHUTTING_DOWN
    fleet.dispatcher.close(fleet.now)
    assert len(fleet.listener.settlements) == 2


def test_a_critical_arrival_evicts_only_where_it_finds_no_slot() -> None:
    """The queue is full with a multi-slot request that reserves a slot: the first takes that slot,
    the second takes its place in the queue."""
    fleet = SteeredFleet(
        Objective(name="gold", criticality=Criticality.CRITICAL), queue_max_requests=1
    )
    fleet.add(2)
    fleet.pick()
    ticket = fleet.queue(weight_slots=2)
    fleet.pick(objective="gold")
    assert fleet.is_waiting(ticket)
    fleet.queue(objective="gold")
    assert not fleet.is_waiting(ticket)


@pytest.mark.parametrize(("ago_s", "counts"), [(50.0, True), (600.0, False)])
def test_what_is_heard_of_late_waits_since_it_arrived(ago_s: float, counts: bool) -> None:
    """Not if Envoy would have given it up since: then its clock is wrong."""
    fleet = SmallFleet(1)
    fleet.pick()
    request = Request(id="r", timeout_s=60.0)
    at = fleet.now - ago_s
    arrival = Arrival(at, given_up_at=at + 60.0 + HOLD_MARGIN_S)
    decision = fleet.dispatcher.submit(request, fleet.now, arrival=arrival)
    assert isinstance(decision, Queued)
    assert decision.ticket.entered_at == (at if counts else fleet.now)


def test_a_request_that_may_not_be_queued_is_limited_and_misses_no_slo() -> None:
    """Its client has too many queued: that says nothing about the fleet. With a free slot it is
    served."""
    fleet = SteeredFleet(Objective(name="chat", queue_s=1.0), queue_max_requests=1)
    fleet.add(1)
    request = Request(id="r", timeout_s=60.0, objective="chat")
    picked = fleet.dispatcher.submit(request, fleet.now, may_queue=False)
    assert isinstance(picked, Picked)
    attainment = fleet.dispatcher.state.slo_attainment
    before = attainment.share("chat", fleet.now)
    for _ in range(2):  # with room in the queue, and without
        decision = fleet.dispatcher.submit(request, fleet.now, may_queue=False)
        assert isinstance(decision, Rejected) and decision.reason is Reason.RATE_LIMITED
        assert attainment.share("chat", fleet.now) == before
        fleet.submit()


def test_a_lease_that_another_process_opened_follows_its_server_too() -> None:
    """Of which nothing else is known."""
    fleet = SmallFleet(1, 1)
    lease = fleet.pick()
    other = next(one for one in fleet.addresses if one != lease.address)
    fleet.dispatcher.state.in_flight.end(lease, fleet.now)
    fleet.dispatcher.responded(lease, fleet.now, served=other, has_headers=False)
    assert lease.address == other and fleet.account(other).free_slots == 0
