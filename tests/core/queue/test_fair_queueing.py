"""Claims about extproc/core/queue/fair_queueing.py: who used how much of the fleet."""

from __future__ import annotations

import heapq
from itertools import count
from statistics import fmean

import pytest

from extproc.core.objective import NO_OBJECTIVE, Objective
from extproc.core.queue.fair_queueing import MAX_FLOWS, MAX_TENANTS, FairQueueing, Flow
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.decision import Picked, Queued
from extproc.core.slots.lease import Lease
from tests.fakes.steered_fleet import SteeredFleet


def serve(fairness: FairQueueing, flow: Flow, *, expected: float = 1.0, used: float = 1.0) -> None:
    fairness.charge(flow, expected, has_waited=True)
    fairness.settle(flow, expected, used)


@pytest.mark.parametrize("expected", [1.0, 0.1])
def test_who_weighs_three_times_as_much_is_served_three_times_as_often(expected: float) -> None:
    """Also where each request takes ten times as long as was expected."""
    fairness = FairQueueing()
    flows = [fairness.flow(Objective(name=name, weight=w), "") for name, w in (("a", 3), ("b", 1))]
    fairness.contention_began()
    for flow in flows:
        fairness.entered(flow)
    served = [0, 0]
    for _ in range(400):
        index = min((0, 1), key=lambda number: flows[number].tenant.virtual_s)
        serve(fairness, flows[index], expected=expected)
        served[index] += 1
    assert served == [pytest.approx(300, abs=3), pytest.approx(100, abs=3)]


def test_who_comes_back_begins_where_its_class_is() -> None:
    """While the others had a line: absence saves nothing up."""
    fairness = FairQueueing()
    busy, away = fairness.flow(NO_OBJECTIVE, "busy"), fairness.flow(NO_OBJECTIVE, "away")
    fairness.contention_began()
    for flow in (busy, away):
        fairness.entered(flow)
    fairness.left(away)
    for _ in range(100):
        serve(fairness, busy)
    fairness.entered(away)
    assert away.tenant.virtual_s >= busy.tenant.virtual_s - 1.0


def test_use_while_nobody_waited_is_forgotten() -> None:
    """It kept nobody waiting, so whoever used much then owes nothing."""
    fairness = FairQueueing()
    busy, idle = fairness.flow(NO_OBJECTIVE, "busy"), fairness.flow(NO_OBJECTIVE, "idle")
    fairness.contention_began()
    fairness.entered(busy)
    fairness.left(busy)
    for _ in range(100):
        fairness.charge(busy, 1.0, has_waited=False)
        fairness.settle(busy, 1.0, 1.0)
    fairness.contention_began()
    for flow in (idle, busy):
        fairness.entered(flow)
    assert busy.tenant.virtual_s == pytest.approx(idle.tenant.virtual_s, abs=1.0)


def test_several_slots_are_used_at_once() -> None:
    """A request on two slots for a second is as much as one on one slot for two."""
    fleet = SteeredFleet()
    fleet.add(3)
    for name, slots, seconds in (("wide", 2, 5.0), ("long", 1, 10.0)):
        outcome = fleet.submit(fairness_id=name, weight_slots=slots)
        assert isinstance(outcome, Picked)
        fleet.now += seconds
        fleet.finish(outcome.lease)
    fairness = fleet.dispatcher.state.fairness
    wide, long = (fairness.peek(NO_OBJECTIVE, name).tenant for name in ("wide", "long"))
    assert wide.virtual_s - wide.credit_s == pytest.approx(long.virtual_s - long.credit_s)


def test_who_neither_waits_nor_runs_is_forgotten_seldom() -> None:
    """Each time costs a look at all: not for each newcomer where ten thousand tenants wait."""
    fairness = FairQueueing()
    for number in range(MAX_FLOWS):
        fairness.entered(fairness.flow(NO_OBJECTIVE, str(number)))
    for number in range(MAX_FLOWS):
        fairness.flow(NO_OBJECTIVE, f"idle {number}")
    assert len(fairness) == 2 * MAX_FLOWS
    fairness.flow(NO_OBJECTIVE, "one more")
    assert len(fairness) == MAX_FLOWS + 1
    for number in range(MAX_FLOWS):
        fairness.left(fairness.flow(NO_OBJECTIVE, str(number)))
    for number in range(MAX_FLOWS + 1):
        fairness.flow(NO_OBJECTIVE, f"new {number}")
    assert len(fairness) <= MAX_FLOWS


def test_a_tenant_gets_no_more_for_its_many_flows() -> None:
    """Three tenants, each with 20 clients that ask again as soon as they are answered, on four
    slots; one names each request anew. Were each name one of its own, it would wait for 1.4 s on
    average, and the others for 26 s; all wait for the same time, and get the same part."""
    fleet = SteeredFleet()
    fleet.add(4)
    running: list[tuple[float, int, Lease, str]] = []
    waiting: dict[int, tuple[Ticket, str]] = {}
    waits_s: dict[str, list[float]] = {"cheat": [], "a": [], "b": []}
    names = count()

    def ask(tenant: str) -> None:
        fairness_id = f"fresh {next(names)}" if tenant == "cheat" else ""
        outcome = fleet.submit(tenant=tenant, fairness_id=fairness_id)
        if isinstance(outcome, Queued):
            waiting[outcome.ticket.id] = (outcome.ticket, tenant)
        else:
            assert isinstance(outcome, Picked)
            heapq.heappush(running, (fleet.now + 0.3, next(names), outcome.lease, tenant))

    for number in range(60):
        ask(list(waits_s)[number % 3])
    while sum(map(len, waits_s.values())) < 3000:
        fleet.now, _, lease, tenant = heapq.heappop(running)
        fleet.finish(lease)
        for ticket, whose in [one for one in waiting.values() if not fleet.is_waiting(one[0])]:
            del waiting[ticket.id]
            waits_s[whose].append(fleet.now - ticket.entered_at)
            heapq.heappush(running, (fleet.now + 0.3, next(names), fleet.served(ticket), whose))
        ask(tenant)
    means_s = {tenant: fmean(waits) for tenant, waits in waits_s.items()}
    assert means_s["cheat"] == pytest.approx(means_s["a"], rel=0.05), means_s
    assert means_s["a"] == pytest.approx(means_s["b"], rel=0.05), means_s
    assert [len(waits) for waits in waits_s.values()] == [pytest.approx(1000, rel=0.02)] * 3


def test_the_flows_of_a_tenant_share_its_part() -> None:
    """One of them waits with a hundred, the other with one, and another tenant with many: the
    two tenants take turns, and so do the flows of the first."""
    fleet = SteeredFleet(max_queued=500)
    fleet.add(1)
    lease = fleet.pick(tenant="other")
    tickets = []
    for tenant, fairness_id, many in (("t", "x", 9), ("other", "", 9), ("t", "y", 2)):
        for number in range(many):
            ticket = fleet.queue(tenant=tenant, fairness_id=fairness_id, timeout_s=1e6)
            tickets.append((ticket, f"{tenant}{fairness_id}{number}"))
    order: list[str] = []
    while len([name for name in order if name[0] == "t"]) < 4:
        fleet.now += 0.1
        fleet.finish(lease)
        ((ticket, name),) = [
            one for one in tickets if not fleet.is_waiting(one[0]) and one[1] not in order
        ]
        order.append(name)
        lease = fleet.served(ticket)
    of_first = [name for name in order if name[0] == "t"]
    assert of_first == ["tx0", "ty0", "tx1", "ty1"]
    assert len(order) - len(of_first) in (3, 4, 5)


def test_without_a_key_each_name_is_a_tenant() -> None:
    """And none is the one of a key, however it is called."""
    fairness = FairQueueing()
    flows = [fairness.flow(NO_OBJECTIVE, *names) for names in (("a",), ("b",), ("", "a"))]
    assert len({flow.tenant for flow in flows}) == 3
    assert fairness.flow(NO_OBJECTIVE, "b", "a").tenant is flows[2].tenant


def test_fresh_names_make_nobody_forgotten() -> None:
    """However many: those that neither wait nor run take no room, and the others' books stay."""
    fairness = FairQueueing()
    fairness.contention_began()
    busy, idle = (fairness.flow(NO_OBJECTIVE, "", tenant) for tenant in ("busy", "idle"))
    fairness.entered(busy)
    fairness.entered(idle)
    for _ in range(10):
        serve(fairness, idle)
    fairness.left(idle)
    assert fairness.debt_s(idle) == 1.0
    for number in range(2 * MAX_FLOWS):
        flow = fairness.flow(NO_OBJECTIVE, f"fresh {number}", "cheat")
        fairness.entered(flow)
        fairness.left(flow)
        serve(fairness, flow, expected=0.0, used=0.0)
    assert len(fairness) <= MAX_FLOWS and len(list(fairness.tenants())) == 3
    assert fairness.debt_s(fairness.peek(NO_OBJECTIVE, "", "idle")) == 1.0
    assert fairness.flow(NO_OBJECTIVE, "", "busy") is busy
    for number in range(2 * MAX_TENANTS):
        fairness.flow(NO_OBJECTIVE, "", f"key {number}")
    assert len(list(fairness.tenants())) <= MAX_TENANTS + MAX_FLOWS
    assert fairness.flow(NO_OBJECTIVE, "", "busy") is busy
