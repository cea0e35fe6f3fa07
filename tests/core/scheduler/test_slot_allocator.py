"""Claims about extproc/core/scheduler/slot_allocator.py: who gets a free slot."""

from __future__ import annotations

import pytest

from extproc.core.decision import Picked, Queued
from extproc.core.observation import ModelReading
from extproc.core.rejection import Reason
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet


def test_every_slot_is_used_and_none_twice() -> None:
    """Six requests fill two and four slots; the seventh waits."""
    fleet = SmallFleet(2, 4)
    picked = [fleet.pick().address for _ in range(6)]
    assert sorted(map(picked.count, fleet.addresses)) == [2, 4]
    assert isinstance(fleet.submit(), Queued)


def test_foreign_slots_are_not_used() -> None:
    """A slot that a foreign request uses is not available."""
    fleet = SmallFleet(2)
    fleet.scrape(fleet.addresses[0], busy=1)
    fleet.pick()
    assert isinstance(fleet.submit(), Queued)


def test_the_queue_is_served_in_order() -> None:
    """Seven requests are queued; each released slot goes to the first of them in the same call."""
    fleet = SmallFleet(2, 4)
    leases = [fleet.pick() for _ in range(6)]
    tickets = [fleet.queue() for _ in range(7)]
    for lease, ticket in zip(leases, tickets, strict=False):
        fleet.now += 1.0
        fleet.finish(lease)
        handed = fleet.listener.settlements[ticket.id]
        assert isinstance(handed, Picked)
        assert (handed.lease.address, handed.waited_s) == (lease.address, fleet.now - 100.0)
    assert list(fleet.dispatcher.queue) == tickets[6:]


def test_no_request_overtakes() -> None:
    """A single-slot arrival waits behind a multi-slot head, though a slot is free for it."""
    fleet = SmallFleet(2)
    running = fleet.pick()
    multi_slot = fleet.queue(weight_slots=2)
    light = fleet.queue()
    assert fleet.account(fleet.addresses[0]).free_slots == 1
    fleet.finish(running)
    assert fleet.handed(multi_slot).weight_slots == 2
    fleet.finish(fleet.handed(multi_slot))
    assert fleet.handed(light).weight_slots == 1


def test_the_next_request_is_served_after_the_head_left() -> None:
    """No wake-up is lost with a withdrawn or cancelled head."""
    for ends in ("withdraw", "cancel"):
        fleet = SmallFleet(2)
        fleet.pick()
        multi_slot, light = fleet.queue(weight_slots=2), fleet.queue()
        getattr(fleet.dispatcher, ends)(multi_slot, fleet.now)
        assert fleet.handed(light).weight_slots == 1


def test_a_multi_slot_head_that_times_out_lets_the_next_through() -> None:
    """The same for one whose deadline passed."""
    fleet = SmallFleet(2)
    fleet.pick()
    multi_slot, light = fleet.queue(weight_slots=2, timeout_s=1.0), fleet.queue()
    fleet.pass_time(1.0)
    assert fleet.rejected(multi_slot).reason is Reason.QUEUE_TIMEOUT
    assert fleet.handed(light).weight_slots == 1


def test_without_any_endpoint_requests_wait() -> None:
    """Scale from zero: the first endpoint that appears serves them, up to its slots."""
    fleet = SmallFleet()
    tickets = [fleet.queue() for _ in range(3)]
    address = fleet.add(2)
    assert [fleet.handed(ticket).address for ticket in tickets[:2]] == [address, address]
    assert list(fleet.dispatcher.queue) == tickets[2:]


@pytest.mark.parametrize("is_loading", [False, True], ids=["with their models", "while they load"])
def test_any_number_of_endpoints_leave_at_once(is_loading: bool) -> None:
    """Each is forgotten with the model that only it had; its queued request goes anywhere."""
    fleet = SteeredFleet(queue_max_requests=1000)
    addresses = [fleet.join() for _ in range(400)]
    for number, address in enumerate(addresses):
        own = ModelReading(name=f"m{number}", is_loaded=not is_loading, is_loading=is_loading)
        last = ModelReading(name=f"m{number - 1}", is_loaded=False)
        fleet.scrape(address, slots=1, busy_slots=1, models=(own, last) if is_loading else (own,))
    tickets = [fleet.queue(model=f"m{number}") for number in range(len(addresses))]
    fleet.dispatcher.set_members("test", [], fleet.now)
    assert len(fleet.dispatcher.fleet) == 0 and not fleet.dispatcher.faults(fleet.now)
    assert all(fleet.is_waiting(ticket) for ticket in tickets)
    fleet.addresses.clear()
    fleet.add(len(addresses))
    assert not any(fleet.is_waiting(ticket) for ticket in tickets)


def test_a_slow_upload_that_is_shed_leaves_no_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is next at one endpoint and has slots reserved at another: others get the slots of
    both."""
    fleet = SmallFleet(2, 2)
    here, there = fleet.addresses
    fleet.scrape(there, busy=2)
    leases = [fleet.pick() for _ in range(2)]
    slow = fleet.queue(weight_slots=2)
    fleet.finish(leases[0])
    assert slow.reserved_at == here
    uploads = fleet.dispatcher.state.uploads
    monkeypatch.setattr(uploads, "may_begin", lambda request, now: request.weight_slots == 1)
    fleet.now += 1.0
    fleet.scrape(there, busy=0)
    assert fleet.rejected(slow).reason is Reason.SHED
    assert sorted(fleet.pick().address for _ in range(3)) == [here, there, there]
    assert fleet.dispatcher.faults(fleet.now) == []


def test_a_ticket_whose_reservation_is_complete_needs_no_other_slots() -> None:
    """It is served where they were reserved as soon as it looks for slots."""
    fleet = SmallFleet(2, 1)
    leases = [fleet.pick() for _ in range(3)]
    ticket = fleet.queue(weight_slots=2)
    fleet.finish(next(lease for lease in leases if lease.address == fleet.addresses[0]))
    assert ticket.reserved_at == fleet.addresses[0]
    fleet.account(fleet.addresses[0]).slots = 3
    with fleet.dispatcher._call:
        fleet.dispatcher._allocator.find_capacity(ticket, fleet.now)
    assert fleet.handed(ticket).address == fleet.addresses[0]
