"""Claims about the order within a flow: shortest expected first, up to a bound; shares stay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import sqrt

from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.constraints import Constraints
from extproc.core.objective import Criticality, Objective
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.flow_order import ARRIVAL_ORDER, Discipline, QueueOrder
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request, ResolvedRequest

BY_SIZE = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED, max_overtaken_s=30.0)
STARTED_FIRST = QueueOrder(discipline=Discipline.STARTED_FIRST, max_overtaken_s=30.0)
ONE, OTHER = Constraints(model="a"), Constraints(model="b")
OBJECTIVES = (
    Objective(name="gold", criticality=Criticality.CRITICAL),
    Objective(name="heavy", weight=3.0),
    Objective(name="light"),
)


TENANTS, FLOWS = ("", "a", "b"), ("", "x", "y")
USED_S = {
    whose: 1.0 + sqrt(prime) / 100.0
    for whose, prime in zip(
        product((each.name for each in OBJECTIVES), TENANTS, FLOWS),
        (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83)
        + (89, 97, 101, 103),
        strict=True,
    )
}
"""Seconds that a request takes, by its flow: no two flows used the same, as in operation. If they
had, the numbers of their first tickets would decide, and these depend on the order in flows."""


class Line:
    """A queue that one slot serves; how long a request takes it depends on its flow alone."""

    def __init__(self, order: QueueOrder) -> None:
        self.fairness = FairQueueing()
        self.queue = RequestQueue(self.fairness, order)
        self.attainment = SloAttainment()

    def enter(
        self,
        size_class: int,
        now: float,
        *,
        tenant: str = "",
        flow: str = "",
        objective: Objective = OBJECTIVES[2],
        constraints: Constraints = ONE,
    ) -> Ticket:
        request = Request(id="r", timeout_s=1e9, tenant=tenant, fairness_id=flow)
        resolved = ResolvedRequest(constraints=constraints, objective=objective)
        return self.queue.enter(request, now, resolved, (2.0**size_class, size_class))

    def next(self, now: float) -> Ticket:
        queue = self.queue.constraint_queue(ONE)
        assert queue is not None
        return queue.next_by_priority(self.attainment, now)[1]

    def serve(self, now: float) -> Ticket:
        ticket = self.next(now)
        self.queue.leave(ticket)
        key = ticket.flow.key
        used_s = USED_S[key.objective, key.tenant, key.fairness_id]
        self.fairness.charge(ticket.flow, used_s, has_waited=True)
        self.fairness.settle(ticket.flow, used_s, used_s)
        return ticket


def test_the_shortest_is_first_and_arrival_decides_among_equals() -> None:
    line = Line(BY_SIZE)
    long, short, equal, shortest = (line.enter(size, 0.0) for size in (5, 1, 1, -4))
    assert [line.serve(1.0) for _ in range(4)] == [shortest, short, equal, long]


def test_after_the_bound_nobody_passes() -> None:
    line = Line(BY_SIZE)
    long = line.enter(5, 0.0)
    short = line.enter(-5, 29.0)
    assert line.next(29.9) is short
    assert line.next(30.0) is long


def test_a_ticket_that_returns_keeps_its_size_and_its_arrival() -> None:
    line = Line(BY_SIZE)
    long, short = line.enter(5, 0.0), line.enter(1, 0.0)
    for constraints in (OTHER, ONE, OTHER, ONE):
        line.queue.change_constraints(short, constraints)
        line.queue.change_constraints(long, constraints)
    assert [line.serve(1.0) for _ in range(2)] == [short, long]


def test_criticality_and_other_tenants_come_before_sizes() -> None:
    """A short request passes no request of a higher criticality, nor of a tenant that used less."""
    line = Line(BY_SIZE)
    line.enter(-5, 0.0, tenant="a")
    line.serve(0.0)
    short = line.enter(-5, 1.0, tenant="a")
    line.enter(-5, 1.0, tenant="a")
    long = line.enter(5, 1.0, tenant="b")
    critical = line.enter(9, 1.0, objective=OBJECTIVES[0])
    first, second, third = (line.serve(2.0) for _ in range(3))
    assert first is critical
    assert {second, third} == {long, short}


ARRIVALS = st.lists(
    st.tuples(
        st.integers(-8, 8),
        st.sampled_from(TENANTS),
        st.sampled_from(FLOWS),
        st.sampled_from(OBJECTIVES),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=60,
)
Arrivals = Sequence[tuple[int, str, str, Objective, int]]


def play(order: QueueOrder, arrivals: Arrivals) -> list[Ticket]:
    """Serve up to two requests after each arrival, and then the rest; a second passes each time."""
    line, served, now = Line(order), list[Ticket](), 0.0
    for size, tenant, flow, objective, count in arrivals:
        line.enter(size, now, tenant=tenant, flow=flow, objective=objective)
        for _ in range(min(count, len(line.queue))):
            served.append(line.serve(now))
        now += 7.0
    while len(line.queue):
        served.append(line.serve(now))
        now += 7.0
    return served


@given(ARRIVALS, st.sampled_from([BY_SIZE, STARTED_FIRST]))
@settings(max_examples=300, deadline=None)
def test_shares_of_tenants_and_flows_do_not_change(arrivals: Arrivals, order: QueueOrder) -> None:
    """The same criticalities, tenants and flows are served in the same turns as in the order of
    arrival; only which request of a flow it is may differ."""
    by_arrival, by_class = play(ARRIVAL_ORDER, arrivals), play(order, arrivals)
    assert [one.flow.key for one in by_arrival] == [one.flow.key for one in by_class]


@given(ARRIVALS)
@settings(max_examples=300, deadline=None)
def test_in_the_order_of_arrival_sizes_change_nothing(arrivals: Arrivals) -> None:
    same_size = [(0, *rest) for _, *rest in arrivals]
    with_sizes = [one.id for one in play(ARRIVAL_ORDER, arrivals)]
    assert with_sizes == [one.id for one in play(ARRIVAL_ORDER, same_size)]  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.sampled_from(("enter", "serve", "move", "leave")), st.integers(-3, 40)),
        max_size=200,
    )
)
def test_against_a_plain_list(moves: list[tuple[str, int]]) -> None:
    """For any arrivals, withdrawals and moves to other constraints and back: the next ticket is the
    first that waited for the bound, else the shortest, else the first."""
    line, here, away, now = Line(BY_SIZE), list[Ticket](), list[Ticket](), 0.0
    for what, number in moves:
        now += max(0, number) / 4
        if what == "enter":
            here.append(line.enter(number % 5, now))
        elif here and what in ("serve", "leave"):
            ticket = line.next(now) if what == "serve" else here[number % len(here)]
            line.queue.leave(ticket)
            here.remove(ticket)
        elif what == "move" and (here or away):
            is_away = bool(away) and (number % 2 == 0 or not here)
            source, target = (away, here) if is_away else (here, away)
            ticket = source.pop(number % len(source))
            line.queue.change_constraints(ticket, ONE if is_away else OTHER)
            target.append(ticket)
        if here:
            late = [one for one in here if now - one.entered_at >= 30.0]
            due = min(late) if late else min(here, key=lambda one: (one.order_class, one.id))
            assert line.next(now) is due
        assert line.queue.faults() == []


def test_stale_entries_do_not_accumulate() -> None:
    line = Line(BY_SIZE)
    line.enter(9, 0.0)
    for _ in range(10_000):
        line.queue.leave(line.enter(10, 0.0))
    queue = line.queue.constraint_queue(ONE)
    assert queue is not None
    (tenants,) = queue.queues.values()
    ((_, flows),) = tenants.tenants()
    assert len(flows._by_class[line.next(0.0).flow]) < 200  # type: ignore[attr-defined]


def test_who_returns_keeps_its_arrival_position_among_its_size() -> None:
    """Thousands return together when the last server of their model is gone."""
    line = Line(BY_SIZE)
    tickets = [line.enter(number % 2, 0.0) for number in range(8)]
    queue = line.queue.constraint_queue(ONE)
    assert queue is not None
    back = tickets[:6]
    for ticket in back:
        queue.leave(ticket)
    for ticket in reversed(back):
        queue.enter(ticket, is_back=True)
    order = []
    for _ in tickets:
        order.append(line.next(0.0))
        line.queue.leave(order[-1])
    assert order == sorted(tickets, key=lambda one: (one.order_class, one.id))
