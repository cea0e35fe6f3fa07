"""Claims about extproc/core/queue/fair_queueing.py: the use of the fleet by tenants and flows."""

from __future__ import annotations

import heapq
from itertools import count
from statistics import fmean

import pytest

from extproc.core.decision import Picked, Queued
from extproc.core.objective import NO_OBJECTIVE, Objective
from extproc.core.queue.fair_queueing import MAX_FLOWS, MAX_TENANTS, FairQueueing, Flow
from extproc.core.queue.ticket import Ticket
from extproc.core.slots.lease import Lease
from tests.fakes.steered_fleet import SteeredFleet


def serve(fairness: FairQueueing, flow: Flow, *, expected: float = 1.0, used: float = 1.0) -> None:
    fairness.charge(flow, expected, has_waited=True)
    fairness.settle(flow, expected, used)


@pytest.mark.parametrize("expected", [1.0, 0.1])
def test_three_times_the_weight_is_served_three_times_as_often(expected: float) -> None:
    """Also if each request takes ten times as long as expected."""
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


def test_a_returning_flow_begins_at_the_virtual_time_of_its_criticality() -> None:
    """While the others were queued: absence saves nothing up."""
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


def test_use_without_a_queue_is_forgotten() -> None:
    """It delayed no request, so a flow that used much then owes nothing."""
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
    """A request on two slots for a second counts as much as one on one slot for two."""
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


def test_idle_flows_are_forgotten_seldom() -> None:
    """Each time costs a scan of all: not for each arrival while ten thousand tenants are queued."""
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
    """Three tenants, each with 20 clients that retry as soon as they are answered, on four slots;
    one gives each request a new name. If each name were a tenant, it would wait for 1.4 s on
    average, and the others for 26 s; all wait for the same time, and get the same share."""
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


def test_the_flows_of_a_tenant_divide_its_share() -> None:
    """One of them has a hundred queued, the other one, and another tenant many: the two tenants
    alternate, and so do the flows of the first."""
    fleet = SteeredFleet(queue_max_requests=500)
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
    """And none is that of a key, whatever its name."""
    fairness = FairQueueing()
    flows = [fairness.flow(NO_OBJECTIVE, *names) for names in (("a",), ("b",), ("", "a"))]
    assert len({flow.tenant for flow in flows}) == 3
    assert fairness.flow(NO_OBJECTIVE, "b", "a").tenant is flows[2].tenant


def test_new_names_evict_no_active_tenant() -> None:
    """For any number: idle flows take no memory, and the use of the others is remembered."""
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
