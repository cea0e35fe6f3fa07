"""Claims about extproc/core/scheduler/takeover.py and the dispatcher's calls for it."""

from __future__ import annotations

from extproc.core.address import Address
from extproc.core.decision import Picked, Queued
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import HOLD_MARGIN_S, Request
from extproc.core.scheduler.takeover import Arrival, HeldLease, Place
from extproc.core.slots.lease import LeaseEnd
from tests.fakes.small_fleet import SmallFleet
from tests.fakes.steered_fleet import SteeredFleet


def held(address: Address, slots: int = 1) -> HeldLease:
    return HeldLease(address, slots, slots, None, opened_at=90.0, waited_s=2.0)


def request(name: str) -> Request:
    return Request(id=name, timeout_s=60.0)


def ago(seconds: float, fleet: SmallFleet) -> Arrival:
    """The arrival of a request whose Envoy has the patience for waits of 60 s."""
    at = fleet.now - seconds
    return Arrival(at, given_up_at=at + 60.0 + HOLD_MARGIN_S)


def test_places_are_kept_whatever_their_order_and_new_requests_come_behind() -> None:
    fleet = SmallFleet(1)
    dispatcher = fleet.dispatcher
    dispatcher.hold()
    for number in (7, 3, 5):
        queued = dispatcher.place(request(f"q{number}"), Place(number, 95.0), fleet.now)
        assert isinstance(queued, Queued)
    fleet.scrape(fleet.addresses[0], slots=1)
    assert [ticket.id for ticket in dispatcher.queue] == [3, 5, 7], "nothing is assigned yet"
    dispatcher.assign(fleet.now)
    assert [ticket.id for ticket in dispatcher.queue] == [5, 7]
    later = dispatcher.submit(request("new"), fleet.now)
    assert isinstance(later, Queued) and later.ticket.id > 7
    assert not dispatcher.faults(fleet.now)


def test_a_place_that_another_has_is_behind_that_one() -> None:
    fleet = SmallFleet(1)
    fleet.pick()
    for name, number in (("a", 4), ("c", 9), ("b", 4)):
        fleet.dispatcher.place(request(name), Place(number, 99.0), fleet.now)
    assert [ticket.request.id for ticket in fleet.dispatcher.queue] == ["a", "b", "c"]
    assert not fleet.dispatcher.faults(fleet.now)


def test_a_request_that_is_heard_of_late_is_queued_where_it_belongs() -> None:
    """Also where those before it were queued by another process. It may wait as long as any other,
    while its Envoy has patience."""
    fleet = SmallFleet(1)
    dispatcher = fleet.dispatcher
    dispatcher.hold(last_ticket=7 << 44, now=fleet.now - 5)
    dispatcher.place(request("continued"), Place(6 << 44, fleet.now - 9), fleet.now)
    for name in ("a", "b", "c"):
        dispatcher.submit(request(name), fleet.now)
        fleet.now += 1
    late = dispatcher.submit(request("late"), fleet.now, arrival=ago(1.5, fleet))
    assert isinstance(late, Queued) and late.ticket.entered_at == fleet.now - 1.5
    assert late.ticket.deadline == fleet.now + 60.0
    old = dispatcher.submit(request("old"), fleet.now, arrival=ago(50.0, fleet))
    assert isinstance(old, Queued)
    assert old.ticket.deadline == fleet.now - 50.0 + 60.0 + HOLD_MARGIN_S / 2
    dispatcher.withdraw(old.ticket, fleet.now)
    names = [ticket.request.id for ticket in dispatcher.queue]
    assert names == ["continued", "a", "b", "late", "c"]
    assert not dispatcher.faults(fleet.now)


def test_a_short_wait_is_whole_also_where_the_place_is_earlier_than_the_wait_is_long() -> None:
    fleet = SmallFleet(1)
    dispatcher = fleet.dispatcher
    fleet.pick()
    dispatcher.submit(request("first"), fleet.now)
    fleet.now += 9.0
    hurried = Request(id="hurried", timeout_s=0.1)
    queued = dispatcher.submit(hurried, fleet.now, arrival=ago(9.5, fleet))
    assert isinstance(queued, Queued)
    assert [ticket.request.id for ticket in dispatcher.queue] == ["hurried", "first"]
    fleet.now += 0.09
    dispatcher.advance(fleet.now)
    assert queued.ticket in list(dispatcher.queue)
    fleet.now += 0.02
    dispatcher.advance(fleet.now)
    assert queued.ticket not in list(dispatcher.queue)
    assert not dispatcher.faults(fleet.now)


def test_one_that_is_heard_of_late_takes_a_free_slot_and_has_waited_since_its_arrival() -> None:
    fleet = SmallFleet(1)
    picked = fleet.dispatcher.submit(request("late"), fleet.now, arrival=ago(1.5, fleet))
    assert isinstance(picked, Picked) and picked.waited_s == 1.5


def test_a_place_takes_a_free_slot_at_once_unless_assignment_is_held() -> None:
    fleet = SmallFleet(1)
    assert isinstance(fleet.dispatcher.place(request("a"), Place(4, 99.0), fleet.now), Picked)


def test_an_adopted_lease_counts_and_its_end_frees_its_slot() -> None:
    fleet = SmallFleet(1)
    [address] = fleet.addresses
    dispatcher = fleet.dispatcher
    picked = dispatcher.adopt(held(address), request("r"), fleet.now)
    assert picked is not None and picked.waited_s == 2.0
    fleet.now += 1
    fleet.scrape(address, busy=1, slots=1)
    account = fleet.account(address)
    assert (account.leased_slots, account.foreign_slots) == (1, 0), "it is counted once"
    queued = dispatcher.submit(request("next"), fleet.now)
    assert isinstance(queued, Queued)
    dispatcher.release(picked.lease, LeaseEnd.SERVED, fleet.now)
    assert not queued.ticket.is_waiting
    assert not dispatcher.faults(fleet.now)


def test_a_lease_is_adopted_whether_its_slot_is_free_or_not() -> None:
    """It records what has happened; nothing else is assigned there meanwhile."""
    fleet = SmallFleet(1)
    [address] = fleet.addresses
    for _ in range(2):
        assert fleet.dispatcher.adopt(held(address), request("r"), fleet.now)
    assert fleet.account(address).free_slots == 0
    assert isinstance(fleet.submit(), Queued)


def test_a_lease_at_an_unknown_endpoint_is_not_adopted() -> None:
    fleet = SmallFleet(1)
    assert fleet.dispatcher.adopt(held(Address("10.9.9.9", 1)), request("r"), 100.0) is None


def test_a_place_may_be_refused_like_any_request() -> None:
    """Its wait is counted from when it was queued first."""
    fleet = SteeredFleet(match=ModelMatch.STRICT)
    fleet.add(1, models=["m"])
    unknown = Request(id="r", timeout_s=60.0, model="nobody has it")
    refused = fleet.dispatcher.place(unknown, Place(4, fleet.now - 9.0), fleet.now)
    assert isinstance(refused, Rejected)
    assert (refused.reason, refused.waited_s) == (Reason.MODEL_NOT_FOUND, 9.0)
    fleet.dispatcher.close(fleet.now)
    refused = fleet.dispatcher.place(request("r"), Place(5, fleet.now), fleet.now)
    assert isinstance(refused, Rejected) and refused.reason is Reason.SHUTTING_DOWN


def test_a_new_request_waits_for_places_that_come_back() -> None:
    """Until then a free slot is given to nobody, but to who cannot wait."""
    fleet = SmallFleet(2)
    dispatcher = fleet.dispatcher
    dispatcher.hold()
    new = dispatcher.submit(request("new"), fleet.now)
    assert isinstance(new, Queued)
    hurried = Request(id="hurried", timeout_s=0.0)
    assert isinstance(dispatcher.submit(hurried, fleet.now), Picked)
    heavy = Request(id="heavy", timeout_s=60.0, weight_slots=2)
    assert isinstance(dispatcher.submit(heavy, fleet.now), Queued)
    back = dispatcher.place(request("back"), Place(0, 95.0), fleet.now)
    assert isinstance(back, Queued)
    assert not dispatcher.faults(fleet.now)
    dispatcher.assign(fleet.now)
    assert back.ticket.id in fleet.listener.settlements
    assert [ticket.request.id for ticket in dispatcher.queue] == ["new", "heavy"]
    assert not dispatcher.faults(fleet.now)


def test_a_full_queue_takes_nobody_who_could_be_served() -> None:
    fleet = SmallFleet(2, queue_max_requests=0)
    fleet.dispatcher.hold()
    assert isinstance(fleet.dispatcher.submit(request("a"), fleet.now), Picked)
