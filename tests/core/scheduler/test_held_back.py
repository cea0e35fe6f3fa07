"""Claims about requests whose session or flow is at its limit, from their arrival to their end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.bounds import BoundKind, BoundLimits, BoundOptions
from extproc.core.client_limits import ClientLimit
from extproc.core.constraints import UNRESOLVED
from extproc.core.decision import Picked, Queued
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.core.objective import Criticality, Objective
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from extproc.core.request_groups import GroupKind
from extproc.core.scheduler.takeover import HeldLease, Place
from extproc.core.slots.lease import LeaseEnd
from extproc.core.spill import SpillOptions
from extproc.core.views.explain import explain
from extproc.core.views.fleet_capacity import fleet_capacity
from extproc.core.views.snapshot import take_queue_snapshot
from extproc.core.views.waits import WaitReason
from tests.fakes.steered_fleet import SteeredFleet

GOLD = Objective(name="gold", criticality=Criticality.CRITICAL)
QUICK = Objective(name="quick", queue_s=1.0)
CHEAP = Objective(name="cheap", criticality=Criticality.SHEDDABLE)
ADA = {"session_id": "ada"}
BOB = {"session_id": "bob"}


def limited(*slots: int, per_session: int | None = 1, **limits: Any) -> SteeredFleet:
    """A fleet whose sessions have this limit, and its flows another."""
    fleet = SteeredFleet(GOLD, QUICK, CHEAP, queue_max_requests=6)
    set_limits(fleet, per_session=per_session, **limits)
    for count in slots:
        fleet.add(count)
    return fleet


def set_limits(fleet: SteeredFleet, **limits: Any) -> None:
    found = {"*": ClientLimit(**limits)} if limits else {}
    options = replace(fleet.dispatcher.options, client_limits=found)
    fleet.dispatcher.renew(options, fleet.now)


def is_held_back(ticket: Ticket, kind: GroupKind | None = None) -> bool:
    """By its session or its flow, or by this one."""
    group = ticket.held_by
    return ticket.is_waiting and group is not None and kind in (None, group.key.kind)


def test_a_request_above_the_limit_waits_while_slots_are_idle_and_gets_the_next() -> None:
    """By arrival. Others pass, of other sessions and of none, and of another tenant with that id;
    one that drains counts until its server has ended it."""
    fleet = limited(8, per_session=2)
    running = [fleet.pick(**ADA) for _ in range(2)]
    waiting = [fleet.queue(**ADA) for _ in range(3)]
    assert all(map(is_held_back, waiting))
    for others in (BOB, {}, {"session_id": ""}, ADA | {"tenant": "key-2"}):
        fleet.pick(**others)
    fleet.finish(running[0])
    assert [ticket.is_waiting for ticket in waiting] == [False, True, True]
    fleet.dispatcher.release(running[1], LeaseEnd.ABANDONED, fleet.now)
    assert is_held_back(waiting[1])
    fleet.pass_time(11.0)
    assert [ticket.is_waiting for ticket in waiting] == [False, False, True]
    assert fleet.served(waiting[1]).opened_at - waiting[1].entered_at == 11.0
    assert fleet.dispatcher.faults(fleet.now) == []


def test_queued_requests_count_and_the_next_takes_its_place_by_arrival() -> None:
    """Behind what came before it, and before what came later."""
    fleet = limited(1, per_session=2)
    running = fleet.pick(**ADA)
    first, second = fleet.queue(**ADA), fleet.queue(**ADA)
    later = fleet.queue()
    assert not is_held_back(first) and is_held_back(second)
    fleet.finish(running)
    assert not fleet.is_waiting(first) and fleet.is_waiting(second) and not is_held_back(second)
    fleet.finish(fleet.served(first))
    assert not second.is_waiting and later.is_waiting


@pytest.mark.parametrize("leaving", ["withdraw", "cancel", "expire"])
def test_a_queued_request_that_goes_lets_in_the_next(leaving: str) -> None:
    """Which finds a slot that is idle at once, here as the one that goes needs a whole server."""
    fleet = limited(2)
    other = fleet.pick()
    heavy = fleet.queue(**ADA, weight_slots=2, timeout_s=5.0)
    waiting = fleet.queue(**ADA)
    assert heavy.reservation is not None and is_held_back(waiting)
    if leaving == "expire":
        fleet.pass_time(6.0)
    elif leaving == "cancel":
        fleet.dispatcher.cancel(heavy, fleet.now)
    else:
        fleet.dispatcher.withdraw(heavy, fleet.now)
    assert not waiting.is_waiting and fleet.served(waiting)
    fleet.finish(other)
    assert fleet.dispatcher.faults(fleet.now) == []


@pytest.mark.parametrize("leaving", ["withdraw", "cancel", "expire", "close"])
def test_one_that_is_held_back_may_go(leaving: str) -> None:
    """And leaves nothing behind; its session is named to a client that waited in vain."""
    fleet = limited(2)
    running = fleet.pick(**ADA)
    waiting = fleet.queue(**ADA, timeout_s=5.0)
    after = fleet.queue(**ADA)
    match leaving:
        case "expire":
            fleet.pass_time(6.0)
            settlement = fleet.listener.settlements[waiting.id]
            assert isinstance(settlement, Rejected) and settlement.waited_s == 6.0
            assert settlement.reason is Reason.QUEUE_TIMEOUT
            assert settlement.detail.startswith("This session may have 1 request at once")
        case "cancel":
            fleet.dispatcher.cancel(waiting, fleet.now)
        case "withdraw":
            fleet.dispatcher.withdraw(waiting, fleet.now)
        case _:
            fleet.dispatcher.close(fleet.now)
            assert not after.is_waiting
    assert not waiting.is_waiting
    fleet.finish(running)
    assert not after.is_waiting
    assert fleet.dispatcher.faults(fleet.now) == []
    if leaving == "close":
        assert not fleet.dispatcher.state.groups.known


def test_a_session_and_a_flow_hold_back_both() -> None:
    """What one would let in waits for the other, and the next that need not is let in."""
    fleet = limited(8, per_session=1, per_flow=2)
    team = {"fairness_id": "team"}
    of_ada, of_none = fleet.pick(**ADA, **team), fleet.pick(**team)
    first = fleet.queue(**ADA, **team)
    second = fleet.queue(**ADA, timeout_s=5.0)
    fleet.pick(**BOB)
    third = fleet.queue(**BOB, **team)
    assert is_held_back(first, GroupKind.SESSION)
    set_limits(fleet, per_session=1, per_flow=1)
    fleet.finish(of_ada)
    assert is_held_back(first, GroupKind.FLOW)
    assert not second.is_waiting, "its session has room, and it is in no flow"
    fleet.finish(of_none)
    assert is_held_back(first, GroupKind.SESSION)
    assert is_held_back(third)
    fleet.finish(fleet.served(second))
    assert not first.is_waiting and is_held_back(third)
    assert fleet.dispatcher.faults(fleet.now) == []


@pytest.mark.parametrize("asked", [{"timeout_s": 0.0}, {"objective": "cheap"}])
def test_what_may_not_wait_is_rejected(asked: dict[str, Any]) -> None:
    """With the reason of a limit, as a slot is free, and so says a dry run."""
    fleet = limited(4, per_session=1)
    fleet.pick(**ADA)
    request = Request(**{"id": "r", "timeout_s": 9.0, **ADA, **asked})
    explained = explain(fleet.dispatcher.view, request, fleet.now)
    assert explained.reason is Reason.RATE_LIMITED
    outcome = fleet.submit(**ADA, **asked)
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.RATE_LIMITED
    assert outcome.retry_after_s == 1.0
    text = "This session may have 1 request at once; wait for one to end."
    assert outcome.detail == text
    fleet.pick(**BOB, **asked)


def test_a_full_queue_rejects_and_evicts_as_ever() -> None:
    """What is held back has a place in the queue, and loses it to a more critical request."""
    fleet = limited(8)
    fleet.pick(**ADA)
    held = [fleet.queue(**ADA) for _ in range(6)]
    assert fleet.rejection(**ADA) == "queue-full"
    fleet.pick()
    critical = fleet.queue(**ADA, objective="gold")
    assert is_held_back(critical) and not held[-1].is_waiting
    settlement = fleet.listener.settlements[held[-1].id]
    assert isinstance(settlement, Rejected) and settlement.reason is Reason.EVICTED


def test_in_a_full_queue_it_makes_place_for_what_its_session_does_not_hold_back() -> None:
    """The newest of them, and its client hears why; a dry run says the same. What is more critical
    stays, and what is held back itself evicts nothing."""
    fleet = limited(2)
    fleet.pick(**ADA)
    fleet.pick()
    critical = fleet.queue(**ADA, objective="gold")
    held = [fleet.queue(**ADA) for _ in range(4)]
    waiting = [fleet.queue()]
    assert fleet.rejection(**ADA) == "queue-full"
    for newest in reversed(held):
        explained = explain(fleet.dispatcher.view, Request(id="r", timeout_s=9.0), fleet.now)
        assert explained.reason is None, "it would be queued"
        waiting.append(fleet.queue())
        settlement = fleet.listener.settlements[newest.id]
        assert isinstance(settlement, Rejected) and settlement.reason is Reason.EVICTED
        assert settlement.detail == "This session may have 1 request at once; wait for one to end."
    assert fleet.rejection() == "queue-full"
    assert is_held_back(critical) and all(ticket.is_waiting for ticket in waiting)


def test_one_that_is_held_back_makes_place_only_where_its_place_is_wanted() -> None:
    """With enough bytes, under the bound that is full, and not in another pool."""
    limits = {(BoundKind.OBJECTIVE, "quick"): BoundLimits(running=1, queued=2)}
    fleet = limited(3)
    options = replace(fleet.dispatcher.options, bounds=BoundOptions(limits=limits))
    fleet.dispatcher.renew(options, fleet.now)
    fleet.pick(**ADA, objective="quick")
    long = fleet.queue(**ADA, body_bytes=600_000)
    quick = [fleet.queue(**ADA, objective="quick") for _ in range(2)]
    other = fleet.queue(**ADA)
    assert fleet.queue(objective="quick").is_waiting
    assert not quick[1].is_waiting and other.is_waiting, "it was not under the bound that is full"
    fleet.pick()
    fleet.pick()
    limit = replace(options.queue, max_body_bytes=1_000_000)
    fleet.dispatcher.renew(replace(options, queue=limit), fleet.now)
    assert fleet.queue(body_bytes=500_000).is_waiting
    assert not long.is_waiting and other.is_waiting, "it holds too few bytes"


def test_a_client_that_may_not_queue_it_is_not_told_of_its_session() -> None:
    """Its own limit of queued requests is what keeps it from waiting."""
    fleet = limited(8)
    fleet.pick(**ADA)
    request = Request(id="r", timeout_s=9.0, session_id="ada")
    outcome = fleet.dispatcher.submit(request, fleet.now, may_queue=False)
    assert isinstance(outcome, Rejected) and outcome.reason is Reason.RATE_LIMITED
    assert outcome.detail == ""


def test_other_limits_apply_at_once_and_end_nothing() -> None:
    """A raised one and one that goes let in what they held back; a lower one holds back more."""
    fleet = limited(8)
    running = [fleet.pick(**ADA)]
    waiting = [fleet.queue(**ADA) for _ in range(4)]
    set_limits(fleet, per_session=3)
    assert [ticket.is_waiting for ticket in waiting] == [False, False, True, True]
    running += [fleet.served(ticket) for ticket in waiting[:2]]
    set_limits(fleet, per_session=2)
    fleet.finish(running.pop())
    assert all(map(is_held_back, waiting[2:]))
    fleet.finish(running.pop())
    assert [ticket.is_waiting for ticket in waiting] == [False, False, False, True]
    set_limits(fleet)
    assert not waiting[3].is_waiting
    fleet.pick(**ADA)
    set_limits(fleet, per_session=3)
    late = fleet.queue(**ADA)
    assert is_held_back(late), "those that began with a limit count"
    assert fleet.dispatcher.faults(fleet.now) == []


def test_people_see_why_it_waits_and_where() -> None:
    """Nobody knows when a request of its session ends, so no time is said."""
    fleet = limited(8, per_session=1, per_flow=4)
    fleet.pick(**ADA)
    waiting = [fleet.queue(**ADA) for _ in range(3)]
    view = fleet.dispatcher.view
    assert view.waits().reason_of(waiting[0]) is WaitReason.LIMIT_REACHED
    note = "held back: 1 request of this session runs or is next, as many as its limit allows"
    assert view.note_of(waiting[0], fleet.now) == note
    places = list(view.positions_of(waiting, fleet.now))
    assert places == [(1, 3, None), (2, 3, None), (3, 3, None)]
    by_model = view.waits().by_model()
    ((any_model, one),) = by_model.items()
    assert any_model == "" and one.by_reason == {WaitReason.LIMIT_REACHED: 3}
    assert one.idle_slots == 7, "any endpoint can serve them"
    snapshot = take_queue_snapshot(view, fleet.now)
    assert (snapshot.queued, snapshot.expected_s) == (3, None)
    assert "limit allows" in snapshot.idle_note
    request = Request(id="r", timeout_s=9.0, session_id="ada", fairness_id="team")
    explained = explain(view, request, fleet.now)
    assert (explained.position, explained.expected_s, explained.reason) == (4, None, None)
    assert explained.note == note
    assert explained.resolved["limits"] == (
        "session ada, 1 of 1 running or next, 3 held back; "
        "fairness id team, 0 of 4 running or next, 0 held back"
    )
    fleet.pick(**BOB)


def test_others_do_not_wait_longer_because_of_it() -> None:
    """Nor does it count for who needs servers, or as use of the fleet."""
    fleet = limited(1)
    running = fleet.pick(**ADA)
    held = [fleet.queue(**ADA, timeout_s=99.0) for _ in range(2)]
    view = fleet.dispatcher.view
    assert view.demands(fleet.now) == {}
    assert fleet_capacity(view).busy == 1
    assert [one.traffic.queued_slots for one in view.scale(fleet.now).values()] == [0] * len(
        view.scale(fleet.now)
    )
    assert not fleet.dispatcher.queue.has_any_for(fleet.dispatcher.fleet.get(running.address))  # type: ignore[arg-type]
    other = fleet.queue()
    assert view.position_of(other, fleet.now)[:2] == (1, 1)
    tenants = fleet.dispatcher.state.fairness.flows()
    assert sum(flow.waiting for flow in tenants) == 1
    assert fleet.dispatcher.state.queue.first_assignable() is other
    fleet.dispatcher.withdraw(other, fleet.now)
    assert fleet.dispatcher.state.queue.first_assignable() is None
    assert all(map(is_held_back, held))


def test_held_back_requests_of_its_criticality_keep_no_critical_one_from_reserved_slots() -> None:
    """As queued ones would: they may wait for these very slots."""
    fleet = limited(2)
    fleet.pick(**ADA)
    held = fleet.queue(**ADA, objective="gold")
    heavy = fleet.queue(weight_slots=2)
    assert heavy.reservation is not None
    fleet.pick(objective="gold")
    assert is_held_back(held) and heavy.is_waiting


def test_the_wait_for_its_session_is_no_miss_of_its_slo() -> None:
    """Else who branches out would get the first turn for his objective."""
    fleet = limited(8)
    first = fleet.pick(**ADA, objective="quick")
    held = [fleet.queue(**ADA, objective="quick", timeout_s=30.0 + n) for n in range(2)]
    fleet.now += 25.0
    fleet.finish(first)
    assert not held[0].is_waiting and is_held_back(held[1])
    fleet.pass_time(7.0)
    assert isinstance(fleet.listener.settlements[held[1].id], Rejected)
    fleet.finish(fleet.served(held[0]))
    assert fleet.dispatcher.view.slo_totals()["quick", "missed"] == 0


def test_it_does_not_spill_before_its_session_lets_it_in() -> None:
    """However long that takes; from then on it waits for a slot like others."""
    fleet = limited()
    near, far = Address("10.0.0.1", 8000), Address("10.0.0.9", 9000)
    spill = SpillOptions(objectives=frozenset({"quick"}), after_wait_s=20.0)
    fleet.dispatcher.renew(replace(fleet.dispatcher.options, spill=spill), fleet.now)
    specs = [EndpointSpec(address=near), EndpointSpec(address=far, tier=2, slots=4)]
    fleet.dispatcher.set_members("test", specs, fleet.now)
    fleet.scrape(near, slots=1, busy_slots=0)
    fleet.scrape(far, slots=4, busy_slots=0)
    running = fleet.pick(**ADA, objective="quick")
    before = fleet.queue(**BOB)
    held = fleet.queue(**ADA, objective="quick")
    fleet.pass_time(30.0)
    assert is_held_back(held) and fleet.dispatcher.view.spilled == 0
    fleet.finish(running)
    assert not before.is_waiting and held.held_by is None
    fleet.pass_time(1.0)
    assert held.is_waiting
    fleet.pass_time(20.0)
    assert fleet.served(held).address == far and fleet.dispatcher.view.spilled == 1
    assert is_held_back(fleet.queue(**ADA, objective="quick"))


def test_a_full_queue_does_not_make_it_spill() -> None:
    """It would be above its limit there, too."""
    fleet = limited(1)
    far = Address("10.0.0.9", 9000)
    spill = SpillOptions(objectives=frozenset({"quick"}))
    fleet.dispatcher.renew(replace(fleet.dispatcher.options, spill=spill), fleet.now)
    specs = [EndpointSpec(address=one) for one in fleet.addresses]
    specs.append(EndpointSpec(address=far, tier=2, slots=4))
    fleet.dispatcher.set_members("test", specs, fleet.now)
    fleet.scrape(far, slots=4, busy_slots=0)
    fleet.pick(**ADA, objective="quick")
    for _ in range(6):
        fleet.queue(**ADA, objective="quick")
    assert fleet.rejection(**ADA, objective="quick") == "queue-full"
    assert fleet.dispatcher.view.spilled == 0


def test_a_request_that_another_process_had_counts_and_others_are_held_back_again() -> None:
    """In order of arrival, in whatever order they come back; a new one waits behind them."""
    fleet = limited(8, per_session=2)
    dispatcher = fleet.dispatcher
    dispatcher.hold(1000, fleet.now)
    held = HeldLease(fleet.addresses[0], 1, 1, None, fleet.now - 5.0, 0.0)
    request = Request(id="r", timeout_s=60.0, session_id="ada")
    adopted = dispatcher.adopt(held, request, fleet.now)
    assert adopted is not None
    tickets: dict[int, Ticket] = {}
    for number in (30, 10, 20):
        place = Place(number, fleet.now - 5.0 + number / 100)
        outcome = dispatcher.place(request, place, fleet.now)
        assert isinstance(outcome, Queued)
        tickets[number] = outcome.ticket
    dispatcher.assign(fleet.now)
    assert [tickets[number].is_waiting for number in (10, 20, 30)] == [False, True, True]
    assert is_held_back(fleet.queue(**ADA))
    fleet.finish(adopted.lease)
    assert [tickets[number].is_waiting for number in (10, 20, 30)] == [False, False, True]
    assert dispatcher.faults(fleet.now) == []


def test_it_is_let_in_where_no_endpoint_is() -> None:
    """After a takeover: there may be one later."""
    fleet = limited()
    fleet.dispatcher.hold(1000, fleet.now)
    request = Request(id="r", timeout_s=60.0, session_id="ada")
    outcome = fleet.dispatcher.place(request, Place(10, fleet.now), fleet.now)
    assert isinstance(outcome, Queued) and is_held_back(outcome.ticket)
    fleet.dispatcher.assign(fleet.now)
    assert outcome.ticket.is_waiting and outcome.ticket.held_by is None
    fleet.add(1)
    assert not outcome.ticket.is_waiting


def test_constraints_of_what_is_held_back_are_kept_up_to_date() -> None:
    """Its model may come and go meanwhile."""
    fleet = SteeredFleet()
    set_limits(fleet, per_session=1)
    fleet.add(2, models=["a"])
    fleet.add(2, models=["b"])
    running = fleet.pick(model="a", **ADA)
    waiting = fleet.queue(model="a", **ADA)
    fleet.scrape(fleet.addresses[1], slots=2, busy_slots=0, models=["a", "b"])
    fleet.dispatcher.set_intent(fleet.addresses[0], Intent.DISABLED, fleet.now)
    fleet.finish(running)
    assert fleet.served(waiting).address == fleet.addresses[1]


def test_names_that_became_known_meanwhile_are_resolved_when_it_is_let_in() -> None:
    """A name that no server has is rejected then, and lets in the next."""
    fleet = SteeredFleet(match=ModelMatch.STRICT)
    set_limits(fleet, per_session=1)
    fleet.add(2, models=["a"])
    second = fleet.join()
    running = fleet.pick(**ADA)
    named = ({"adapter": "sql"}, {"model": "b:none"}, {"adapter": "sql"})
    waiting = [fleet.queue(**ADA, **name) for name in named]
    assert all(map(is_held_back, waiting))
    assert {ticket.constraints for ticket in waiting} == {UNRESOLVED}
    fleet.scrape(second, slots=1, busy_slots=0, models=["a"], adapters=["sql"])
    assert all(map(is_held_back, waiting))
    fleet.finish(running)
    assert fleet.served(waiting[0]).address == second
    fleet.finish(fleet.served(waiting[0]))
    settlement = fleet.listener.settlements[waiting[1].id]
    assert isinstance(settlement, Rejected) and settlement.reason is Reason.MODEL_NOT_FOUND
    assert fleet.served(waiting[2]).address == second


def test_a_bound_and_a_session_hold_back_both() -> None:
    """It has a place in the queue of the bound meanwhile."""
    fleet = limited(8)
    limits = {(BoundKind.PATH, "/x"): BoundLimits(running=1, queued=2)}
    bounds = BoundOptions(limits=limits, paths={"/x": "/x"})
    fleet.dispatcher.renew(replace(fleet.dispatcher.options, bounds=bounds), fleet.now)
    running = fleet.pick(path="/x", **ADA)
    waiting = [fleet.queue(path="/x", **session) for session in (ADA, BOB)]
    assert [is_held_back(ticket) for ticket in waiting] == [True, False]
    assert fleet.rejection(path="/x", **ADA) == "bound-reached"
    fleet.finish(running)
    assert [ticket.is_waiting for ticket in waiting] == [False, True]
    fleet.finish(fleet.served(waiting[0]))
    assert not waiting[1].is_waiting


def test_lost_counts_are_found_and_repaired() -> None:
    """By the leases and the tickets; who is held back is decided again."""
    fleet = limited(1, per_session=2)
    fleet.pick(**ADA)
    tickets = [fleet.queue(**ADA) for _ in range(3)]
    (group,) = fleet.dispatcher.state.groups.known.values()
    group.requests, group.held_back = 7, 0
    assert len(fleet.dispatcher.faults(fleet.now)) == 1
    fleet.dispatcher.rebuild(fleet.now)
    assert fleet.dispatcher.faults(fleet.now) == []
    assert (group.requests, group.held_back) == (2, 2)
    group.most = 5
    assert len(fleet.dispatcher.faults(fleet.now)) == 2, "nothing holds them back"
    fleet.dispatcher.rebuild(fleet.now)
    assert fleet.dispatcher.faults(fleet.now) == []
    assert not any(map(is_held_back, tickets))


def test_a_spilled_and_a_picked_request_count_alike() -> None:
    """A decision in the same call counts once."""
    fleet = limited(2, per_session=2)
    outcome = fleet.submit(**ADA)
    assert isinstance(outcome, Picked)
    (group,) = outcome.lease.groups
    assert (group.requests, group.held_back) == (1, 0)
    fleet.finish(outcome.lease)
    assert not fleet.dispatcher.state.groups.known, "nothing is kept of it"
