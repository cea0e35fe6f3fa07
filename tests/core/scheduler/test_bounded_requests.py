"""Claims about requests under bounds, in extproc/core/scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.bounds import Bound, BoundKind, BoundLimits, BoundOptions
from extproc.core.decision import Picked, Queued
from extproc.core.objective import Criticality, Objective
from extproc.core.observation import ModelReading, ScrapeStatus
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from extproc.core.scheduler.takeover import HeldLease, Place
from extproc.core.slots.lease import LeaseEnd
from extproc.core.views.explain import explain
from extproc.core.views.waits import WaitReason
from tests.fakes.steered_fleet import SteeredFleet

BATCH = Objective(name="batch")
NOW = Objective(name="now", criticality=Criticality.CRITICAL)
CHEAP = Objective(name="cheap", criticality=Criticality.SHEDDABLE)


def bounded(
    *slots: int, models: dict[str, BoundLimits] | None = None, **limits: Any
) -> SteeredFleet:
    """A fleet whose objective `batch` has these limits, and models have theirs."""
    fleet = SteeredFleet(BATCH, NOW, CHEAP, queue_max_requests=10)
    set_bounds(fleet, models, **limits)
    for count in slots:
        fleet.add(count)
    return fleet


def set_bounds(
    fleet: SteeredFleet, models: dict[str, BoundLimits] | None = None, **limits: Any
) -> None:
    found = {(BoundKind.MODEL, name): one for name, one in (models or {}).items()}
    if limits:
        found[BoundKind.OBJECTIVE, "batch"] = BoundLimits(**limits)
    options = BoundOptions(limits=found)
    fleet.dispatcher.renew(replace(fleet.dispatcher.options, bounds=options), fleet.now)


def bound(fleet: SteeredFleet, name: str = "batch") -> Bound:
    return next(one for one in fleet.dispatcher.view.bounds if one.name == name)


def test_a_request_above_a_bound_waits_while_slots_are_idle() -> None:
    """Others pass; it is served when one of its own ends, wherever that was, and a draining one
    counts until its server has ended it."""
    fleet = bounded(1, 4, running=2)
    running = [fleet.pick(objective="batch") for _ in range(2)]
    waiting = [fleet.queue(objective="batch") for _ in range(3)]
    other = fleet.pick()
    assert (bound(fleet).running, bound(fleet).queued) == (2, 3)
    assert fleet.dispatcher.view.waits().reason_of(waiting[0]) is WaitReason.BOUND_REACHED
    note = "2 requests of the objective batch run and 3 are queued, as many as its bound allows"
    assert (
        fleet.dispatcher.view.queue_note(waiting[0].resolved, waiting[0].request, fleet.now) == note
    )
    fleet.finish(other)
    assert all(ticket.is_waiting for ticket in waiting)
    fleet.finish(running[0])
    assert [ticket.is_waiting for ticket in waiting] == [False, True, True]
    fleet.dispatcher.release(running[1], LeaseEnd.ABANDONED, fleet.now)
    assert waiting[1].is_waiting and bound(fleet).running == 2
    fleet.pass_time(11.0)
    assert [ticket.is_waiting for ticket in waiting] == [False, False, True]
    assert fleet.dispatcher.faults(fleet.now) == []


def test_a_place_is_given_where_a_slot_is_idle() -> None:
    """The request that ended was of another model: nothing is free for those that wait there."""
    fleet = SteeredFleet(BATCH)
    set_bounds(fleet, running=1)
    fleet.add(1, models=["a"])
    fleet.add(1, models=["b"])
    first = fleet.pick(model="a", objective="batch")
    ticket = fleet.queue(model="b", objective="batch")
    fleet.finish(first)
    assert not ticket.is_waiting


def test_the_place_goes_to_the_first_by_priority() -> None:
    """Of two models with idle slots, under a bound of a path both; so does a later one."""
    fleet = SteeredFleet(BATCH, NOW)
    limits = {(BoundKind.PATH, "/x"): BoundLimits(running=1)}
    options = BoundOptions(limits=limits, paths={"/x": "/x"})
    fleet.dispatcher.renew(replace(fleet.dispatcher.options, bounds=options))
    for model in ("a", "b"):
        fleet.add(2, models=[model])
    first = fleet.pick(model="a", path="/x")
    slow = fleet.queue(model="a", path="/x")
    fast = fleet.queue(model="b", path="/x", objective="now")
    fleet.finish(first)
    assert slow.is_waiting and not fast.is_waiting
    fleet.pick(model="a", path="/y")


def test_a_full_queue_of_a_bound_rejects_with_its_own_reason() -> None:
    """The client learns which bound, and when to return; the queue of all is not full."""
    fleet = bounded(4, running=1, queued=1)
    fleet.pick(objective="batch")
    fleet.queue(objective="batch")
    outcome = fleet.submit(objective="batch")
    assert isinstance(outcome, Rejected)
    assert outcome.reason is Reason.BOUND_REACHED and outcome.retry_after_s >= 1.0
    text = "1 request of the objective batch runs and 1 is queued, as many as its bound allows."
    assert outcome.detail == text
    request = Request(id="r", timeout_s=60.0, objective="batch")
    explained = explain(fleet.dispatcher.view, request, fleet.now)
    assert explained.reason is Reason.BOUND_REACHED
    assert explained.resolved["bounds"] == "objective batch, 1 of 1 running, 1 of 1 queued"
    fleet.pick()


@pytest.mark.parametrize(("objective", "timeout_s"), [("cheap", 60.0), ("batch", 0.0)])
def test_what_may_not_wait_is_rejected_at_a_bound(objective: str, timeout_s: float) -> None:
    """With the reason of the bound, as a slot is free."""
    fleet = bounded(4, models={"m": BoundLimits(running=1)})
    fleet.pick(model="m")
    reason = fleet.rejection(model="m", objective=objective, timeout_s=timeout_s)
    assert reason == "bound-reached"


def test_a_bound_that_queues_none() -> None:
    fleet = bounded(2, queued=0)
    for _ in range(2):
        fleet.pick(objective="batch")
    assert fleet.rejection(objective="batch") == "bound-reached"
    fleet.queue()


def test_a_critical_request_takes_the_place_of_another_in_a_bounds_queue() -> None:
    """The newest of lower criticality that is under the same bound; others stay."""
    fleet = bounded(1, models={"m": BoundLimits(queued=2)})
    fleet.pick()
    kept, victim = fleet.queue(model="m"), fleet.queue(model="m")
    other = fleet.queue()
    assert fleet.rejection(model="m") == "bound-reached"
    critical = fleet.queue(model="m", objective="now")
    rejected = fleet.listener.settlements[victim.id]
    assert isinstance(rejected, Rejected) and rejected.reason is Reason.EVICTED
    assert kept.is_waiting and other.is_waiting and critical.is_waiting
    fleet.queue(model="m", objective="now")
    assert fleet.rejection(model="m", objective="now") == "bound-reached"


def test_the_shortest_time_in_the_queue_holds() -> None:
    """The client's own, the queue's, or that of a bound."""
    limits = {"m": BoundLimits(queue_timeout_s=5.0)}
    fleet = bounded(1, models=limits, queue_timeout_s=20.0)
    fleet.pick()
    both = fleet.queue(model="m", objective="batch", timeout_s=60.0)
    own = fleet.queue(model="m", timeout_s=2.0)
    batch = fleet.queue(objective="batch", timeout_s=60.0)
    free = fleet.queue(timeout_s=60.0)
    deadlines = [ticket.deadline - fleet.now for ticket in (both, own, batch, free)]
    assert deadlines == [5.0, 2.0, 20.0, 60.0]
    fleet.pass_time(6.0)
    rejected = fleet.listener.settlements[both.id]
    assert isinstance(rejected, Rejected) and rejected.reason is Reason.QUEUE_TIMEOUT


def test_the_newest_is_next_where_the_order_says_so() -> None:
    """Under one bound. The other requests of the flow keep their turns, as if the order were that
    of arrival."""
    fleet = bounded(1, models={"m": BoundLimits(is_last_come=True)})
    running = fleet.pick()
    newest_first = []
    others = []
    for _ in range(3):
        newest_first.append(fleet.queue(model="m"))
        others.append(fleet.queue())
    assert fleet.dispatcher.view.order_of(newest_first[0]).label == "last_come"
    assert fleet.dispatcher.view.order_of(others[0]).label is None
    expected = [
        *(newest_first[2], others[0], newest_first[1], others[1], newest_first[0], others[2]),
    ]
    for ticket in expected:
        fleet.finish(running)
        settlement = fleet.listener.settlements[ticket.id]
        assert isinstance(settlement, Picked)
        running = settlement.lease


def test_a_queue_position_counts_those_that_came_later() -> None:
    """In an order that says so; it rises with each that comes."""
    fleet = bounded(1, is_last_come=True)
    fleet.pick()
    tickets = [fleet.queue(objective="batch") for _ in range(3)]
    places = fleet.dispatcher.view.positions_of(tickets, fleet.now)
    assert [place.position for place in places] == [3, 2, 1]
    request = Request(id="r", timeout_s=60.0, objective="batch")
    assert explain(fleet.dispatcher.view, request, fleet.now).position == 1


def test_one_that_leaves_takes_no_turn_of_others() -> None:
    """Whichever of the newest-first requests leaves, the oldest turn goes with it."""
    fleet = bounded(1, models={"m": BoundLimits(is_last_come=True)})
    running = fleet.pick()
    first, last = fleet.queue(model="m"), fleet.queue(model="m")
    other = fleet.queue()
    fleet.dispatcher.withdraw(last, fleet.now)
    fleet.finish(running)
    assert not first.is_waiting and other.is_waiting


def test_an_order_that_is_reloaded_applies_to_the_queue() -> None:
    fleet = bounded(1, queued=9)
    running = fleet.pick()
    first, _, last = (fleet.queue(objective="batch") for _ in range(3))
    set_bounds(fleet, queued=9, is_last_come=True)
    fleet.finish(running)
    assert first.is_waiting and not last.is_waiting
    assert fleet.dispatcher.faults(fleet.now) == []


def test_limits_that_are_reloaded_let_the_queue_go_at_once() -> None:
    """A higher one as far as it goes, none for all; what ran before a bound is not under it."""
    fleet = bounded(8, running=1)
    before = fleet.pick(objective="batch")
    waiting = [fleet.queue(objective="batch") for _ in range(4)]
    set_bounds(fleet, running=3)
    assert [ticket.is_waiting for ticket in waiting] == [False, False, True, True]
    set_bounds(fleet)
    assert not any(ticket.is_waiting for ticket in waiting)
    set_bounds(fleet, running=1)
    fleet.pick(objective="batch")
    fleet.queue(objective="batch")
    fleet.finish(before)
    assert (bound(fleet).running, bound(fleet).queued) == (1, 1)
    assert fleet.dispatcher.faults(fleet.now) == []


def test_a_reservation_holds_a_place() -> None:
    """So slots are never reserved for a request that its bound holds back."""
    fleet = bounded(2, 2, running=2)
    held = fleet.addresses[0]
    one, two = (fleet.pick(allowed=frozenset({held})) for _ in range(2))
    fleet.pick(objective="batch")
    heavy = fleet.queue(objective="batch", weight_slots=2, allowed=frozenset({held}))
    fleet.finish(one)
    assert heavy.reservation is not None and bound(fleet).is_full
    light = fleet.queue(objective="batch")
    assert light.is_waiting, "the second place is taken, though a slot is idle"
    fleet.finish(two)
    assert not heavy.is_waiting and light.is_waiting
    assert (bound(fleet).running, bound(fleet).reserved) == (2, 0)


def test_a_reservation_that_ends_gives_its_place_to_another() -> None:
    """Its client left, while it waited for the second slot."""
    fleet = bounded(2, 2, running=2)
    held = fleet.addresses[0]
    one, _ = (fleet.pick(allowed=frozenset({held})) for _ in range(2))
    fleet.pick(objective="batch")
    heavy = fleet.queue(objective="batch", weight_slots=2, allowed=frozenset({held}))
    fleet.finish(one)
    light = fleet.queue(objective="batch")
    fleet.dispatcher.withdraw(heavy, fleet.now)
    assert not light.is_waiting
    assert fleet.dispatcher.faults(fleet.now) == []


def test_aliases_and_splits_are_bound_by_both_names() -> None:
    """A request for `chat` is under the bounds of `chat` and of the model that it got."""
    fleet = SteeredFleet(splits={"chat": {"tiny": 1.0}})
    set_bounds(fleet, {"small": BoundLimits(running=2), "chat": BoundLimits(running=1)})
    fleet.add(4, models=[ModelReading(name="tiny", aliases=("small",))])
    fleet.pick(model="chat")
    fleet.queue(model="chat")
    fleet.pick(model="tiny")
    fleet.queue(model="small")
    assert [one.running for one in fleet.dispatcher.view.bounds] == [2, 1]


def test_a_name_that_is_resolved_later_is_under_its_bound_from_then_on() -> None:
    """Its adapter was not reported yet."""
    fleet = SteeredFleet(BATCH)
    set_bounds(fleet, {"tiny": BoundLimits(running=1)}, running=9)
    fleet.join()
    tickets = [fleet.queue(model="tiny:lora", objective="batch") for _ in range(2)]
    assert (bound(fleet, "tiny").queued, bound(fleet).queued) == (0, 2)
    fleet.scrape(fleet.addresses[0], slots=4, busy_slots=0, models=["tiny"], adapters=["lora"])
    assert [ticket.is_waiting for ticket in tickets] == [False, True]
    assert (bound(fleet, "tiny").running, bound(fleet, "tiny").queued) == (1, 1)
    assert (bound(fleet).running, bound(fleet).queued) == (1, 1)
    assert fleet.dispatcher.faults(fleet.now) == []


def test_who_takes_over_counts_what_runs_and_waits() -> None:
    """Also above the limits, as they run and wait already."""
    fleet = bounded(4, running=2, queued=1)
    dispatcher = fleet.dispatcher
    dispatcher.hold()
    request = Request(id="r", timeout_s=60.0, objective="batch")
    for _ in range(3):
        held = HeldLease(fleet.addresses[0], 1, 1, None, fleet.now, 0.0)
        assert dispatcher.adopt(held, request, fleet.now) is not None
    for number in (1, 2):
        placed = dispatcher.place(request, Place(number, fleet.now), fleet.now)
        assert isinstance(placed, Queued)
    dispatcher.assign(fleet.now)
    assert (bound(fleet).running, bound(fleet).queued) == (3, 2)
    assert dispatcher.faults(fleet.now) == []


def test_a_lost_count_is_found_and_repaired() -> None:
    """By the auditor's call, as any other fault of the books."""
    fleet = bounded(4, running=1)
    lease, ticket = fleet.pick(objective="batch"), fleet.queue(objective="batch")
    bound(fleet).running = 7
    (fault,) = fleet.dispatcher.faults(fleet.now)
    assert "objective batch: (7, 1, 0) requests" in fault
    fleet.dispatcher.rebuild(fleet.now)
    assert fleet.dispatcher.faults(fleet.now) == []
    fleet.finish(lease)
    assert not ticket.is_waiting


def test_a_bound_asks_for_no_more_servers() -> None:
    """Neither of keepers nor of what scales: a further slot would be idle, too."""
    fleet = bounded(4, models={"m": BoundLimits(running=1)})
    fleet.scrape(fleet.addresses[0], slots=4, busy_slots=0, models=["m"])
    fleet.pick(model="m")
    for _ in range(3):
        fleet.queue(model="m")
    assert fleet.dispatcher.view.demands(fleet.now) == {}
    assert fleet.dispatcher.view.scale(fleet.now)["m"].traffic.queued_slots == 0


def test_the_expected_time_counts_the_places_of_a_bound() -> None:
    """With one of eight slots for it, a request waits for those before it, one after another."""
    fleet = bounded(8, running=1)
    for _ in range(3):
        lease = fleet.pick(objective="batch")
        fleet.now += 4.0
        fleet.dispatcher.responded(lease, fleet.now)
        fleet.finish(lease)
    fleet.pick(objective="batch")
    times = []
    for _ in range(3):
        ticket = fleet.queue(objective="batch")
        times.append(fleet.dispatcher.view.position_of(ticket, fleet.now).expected_s)
    first, second, third = times
    assert first is not None and second is not None and third is not None
    assert first < second < third and third / first == pytest.approx(3.0)
    outcome = fleet.submit(objective="batch", timeout_s=0.0)
    assert isinstance(outcome, Rejected) and outcome.retry_after_s > third


def test_a_server_that_leaves_with_all_places_gives_them_back() -> None:
    """Its requests drain until their cap; then the places are free for others."""
    fleet = bounded(2, 2, running=2)
    leases = [fleet.pick(objective="batch", allowed=frozenset({fleet.addresses[0]})) for _ in "ab"]
    ticket = fleet.queue(objective="batch")
    fleet.scrape(fleet.addresses[0], status=ScrapeStatus.UNREACHABLE)
    for lease in leases:
        fleet.dispatcher.release(lease, LeaseEnd.ABANDONED, fleet.now)
    fleet.pass_time(11.0)
    settlement = fleet.listener.settlements[ticket.id]
    assert isinstance(settlement, Picked)
    assert settlement.lease.address == Address("10.0.0.1", 8001)
