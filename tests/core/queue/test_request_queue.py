"""Claims about extproc/core/queue/request_queue.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.constraints import Constraints
from extproc.core.objective import Criticality, Objective
from extproc.core.queue.request_queue import FEW_QUEUES, RequestQueue
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.queue.ticket import Ticket
from extproc.core.request import UNCONSTRAINED_REQUEST, Request, ResolvedRequest
from tests.fakes.steered_fleet import SteeredFleet

CONSTRAINTS = (Constraints(model="a"), Constraints(model="b"))


def enter(queue: RequestQueue, timeout_s: float = 10.0, now: float = 0.0) -> Ticket:
    return queue.enter(Request(id="r", timeout_s=timeout_s), now)


def test_first_come_first_served() -> None:
    """The first to arrive is the head; tickets that left are skipped; an empty queue has no
    head."""
    queue = RequestQueue()
    assert queue.first_arrived() is None
    first, second, third = (enter(queue) for _ in range(3))
    queue.leave(second)
    assert (queue.first_arrived(), list(queue), len(queue)) == (first, [first, third], 2)
    queue.leave(first)
    assert queue.first_arrived() is third
    queue.leave(third)
    assert queue.first_arrived() is None and not queue


def test_a_ticket_leaves_once() -> None:
    """To remove a ticket that is not queued is a bug of the caller."""
    queue = RequestQueue()
    ticket = enter(queue)
    queue.leave(ticket)
    assert not ticket.is_waiting
    with pytest.raises(KeyError):
        queue.leave(ticket)


def test_expired_in_order_of_deadline() -> None:
    """Deadlines have their own order, not that of arrival; the last moment counts."""
    queue = RequestQueue()
    late, early, never = enter(queue, 5.0), enter(queue, 3.0), enter(queue, 99.0)
    assert queue.next_deadline() == 3.0
    assert queue.expired(2.999) == []
    expired = queue.expired(5.0)
    assert expired == [early, late] and queue.expired(5.0) == []
    for ticket in expired:
        queue.leave(ticket)
    assert list(queue) == [never]
    assert queue.next_deadline() == 99.0


def test_a_ticket_that_left_has_no_deadline() -> None:
    """A ticket that was served causes no wake-up later."""
    queue = RequestQueue()
    queue.leave(enter(queue, 3.0))
    assert queue.next_deadline() is None
    assert queue.expired(4.0) == []


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 3)), max_size=60), st.data())
def test_against_a_plain_list(events: list[tuple[float, int]], data: st.DataObject) -> None:
    """For any arrivals, withdrawals and deadlines: the queue equals the list of queued tickets, in
    order."""
    queue, plain, now = RequestQueue(), list[Ticket](), 0.0
    for number, kind in events:
        if kind < 2:
            plain.append(enter(queue, number, now))
        elif kind == 2 and plain:
            ticket = data.draw(st.sampled_from(plain))
            queue.leave(ticket)
            plain.remove(ticket)
        elif kind == 3:
            now += number / 2
            due = sorted((t for t in plain if t.deadline <= now), key=lambda t: (t.deadline, t.id))
            late = queue.expired(now)
            assert late == due
            for ticket in late:
                queue.leave(ticket)
            plain = [t for t in plain if t.deadline > now]
        assert list(queue) == plain
        assert queue.next_deadline() == min((t.deadline for t in plain), default=None)


def test_deadlines_of_served_tickets_do_not_accumulate() -> None:
    """A hundred thousand served requests leave no heap of deadlines behind."""
    queue = RequestQueue()
    enter(queue, 1.0)
    for _ in range(100_000):
        queue.leave(enter(queue, 3600.0))
    assert len(queue._deadlines) < 200


WHOSE = [("a", ""), ("a", "x"), ("a", "y"), ("", "z"), ("b", "z")]
"""Tenants and their flows; without a tenant the flow is one."""


@given(
    moves=st.lists(
        st.tuples(st.sampled_from(["enter", "move", "leave", "scrape"]), st.integers(0, 99))
    ),
    used_s=st.lists(st.integers(0, 2), min_size=5, max_size=5),
)
def test_a_returning_ticket_has_its_arrival_position(
    moves: list[tuple[str, int]], used_s: list[int]
) -> None:
    """Tickets of three tenants, some with flows, that move between constraint queues and may return
    to each: the head of a queue is the first of the flow that used least of the tenant that used
    least."""
    queue, tickets = RequestQueue(), list[Ticket]()
    for what, number in moves:
        ticket = tickets[number % len(tickets)] if tickets else None
        if what == "enter":
            resolved = ResolvedRequest(constraints=CONSTRAINTS[number % 2])
            whose, fairness_id = WHOSE[number % 5]
            request = Request(id="r", timeout_s=1.0, tenant=whose, fairness_id=fairness_id)
            tickets.append(queue.enter(request, 0.0, resolved))
            flow = tickets[-1].flow
            flow.virtual_s = max(flow.virtual_s, used_s[number % 3])
            flow.tenant.virtual_s = max(flow.tenant.virtual_s, used_s[number % 5])
        elif what == "move" and ticket is not None:
            queue.change_constraints(ticket, CONSTRAINTS[ticket.constraints is CONSTRAINTS[0]])
        elif what == "leave" and ticket is not None:
            queue.leave(ticket)
            tickets.remove(ticket)
        elif what == "scrape":
            for constraint_queue in queue.constraint_queues():
                here = [one for one in tickets if one.queued_in is constraint_queue]
                first = constraint_queue.next_by_priority(SloAttainment(), 0.0)[1]
                tenant = first.flow.tenant
                of_tenant = [one for one in here if one.flow.tenant is tenant]
                assert first is min(of_tenant, key=lambda one: (one.flow.virtual_s, one.id))
                assert tenant.virtual_s == min(one.flow.tenant.virtual_s for one in here)
                if len({one.flow for one in here}) == len({one.flow.tenant for one in here}):
                    assert first is min(here, key=lambda one: (one.flow.tenant.virtual_s, one.id))
                assert constraint_queue.first_arrived() is min(here)


def test_many_returning_tickets_are_sorted_once() -> None:
    """A model's last server leaves, and thousands of its requests may go anywhere, like thousands
    before them: sorting all of them for each would stall the picker for seconds."""
    queue = RequestQueue()
    tickets = [
        queue.enter(
            Request(id="r", timeout_s=1.0),
            0.0,
            ResolvedRequest(constraints=CONSTRAINTS[number % 2]),
        )
        for number in range(20)
    ]
    tenant_queue = next(iter(next(queue.constraint_queues()).queues.values()))
    for ticket in tickets[1::2]:
        queue.change_constraints(ticket, CONSTRAINTS[0])
    ((_, flows),) = tenant_queue.tenants()
    (waiting,) = flows
    assert list(waiting) != sorted(waiting)
    for ticket in tickets:
        (constraint_queue,) = queue.constraint_queues()
        assert constraint_queue.next_by_priority(SloAttainment(), 0.0)[1] is ticket
        queue.leave(ticket)


def test_the_newest_of_the_lowest_criticality_gives_way() -> None:
    """With enough bytes, if bytes are what is lacking; none of the same criticality."""
    queue = RequestQueue()
    cheap, usual = (
        Objective(name=one.label, criticality=one)
        for one in (Criticality.SHEDDABLE, Criticality.STANDARD)
    )

    def enter_with(objective: Objective, body_bytes: int) -> Ticket:
        request = Request(id="r", timeout_s=9.0, body_bytes=body_bytes)
        return queue.enter(request, 0.0, ResolvedRequest(objective=objective))

    first = enter_with(usual, 100)
    assert queue.newest_below(Criticality.STANDARD) is None
    assert queue.newest_below(Criticality.CRITICAL) is first
    long, short = enter_with(cheap, 50), enter_with(cheap, 5)
    assert queue.newest_below(Criticality.CRITICAL) is short
    assert queue.newest_below(Criticality.CRITICAL, least_bytes=50) is long
    assert queue.newest_below(Criticality.CRITICAL, least_bytes=60) is first
    assert queue.newest_below(Criticality.CRITICAL, least_bytes=101) is None
    assert queue.count_of(Criticality.SHEDDABLE) == 2 and queue.body_bytes == 155


def test_an_endpoint_finds_its_queues_among_many_by_its_address_and_its_models() -> None:
    """As among few, where each is checked."""
    fleet = SteeredFleet()
    address = fleet.add(1, models=["a"])
    endpoint = fleet.dispatcher.fleet.get(address)
    assert endpoint is not None
    queue = RequestQueue()

    def enter_for(constraints: Constraints) -> None:
        queue.enter(Request(id="r", timeout_s=9.0), 0.0, ResolvedRequest(constraints))

    own = [Constraints(), Constraints(model="a"), Constraints(allowed=frozenset({address}))]
    for constraints in own:
        enter_for(constraints)
    for number in range(2 * FEW_QUEUES):
        assert {one.constraints for one in queue.queues_for(endpoint)} == set(own)
        enter_for(Constraints(model=f"m{number}"))


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60))
def test_what_is_heard_of_late_is_queued_by_its_arrival(arrivals: list[tuple[int, bool]]) -> None:
    """Whatever comes between, and behind those that arrived in the same moment."""
    queue, now = RequestQueue(), 0.0
    expected: list[tuple[float, int]] = []
    for number, (age_s, is_late) in enumerate(arrivals):
        now += 0.5
        request = Request(id=str(number), timeout_s=99.0)
        arrived_at = max(0.0, now - age_s) if is_late else now
        if is_late:
            queue.place(None, request, arrived_at, UNCONSTRAINED_REQUEST)
        else:
            queue.enter(request, now)
        expected.append((arrived_at, number))
        first = queue.first_arrived()
        assert first is not None and first.request.id == str(min(expected)[1])
    assert [ticket.request.id for ticket in queue] == [str(each[1]) for each in sorted(expected)]
    assert not queue.faults()


def test_a_place_that_is_taken_is_the_next_free_one() -> None:
    """Behind all tickets that came right after it."""
    queue = RequestQueue()
    first, second, third = (enter(queue) for _ in range(3))
    returned = queue.place(first.id, Request(id="again", timeout_s=9.0), 0.0, UNCONSTRAINED_REQUEST)
    assert list(queue) == [first, second, third, returned]
    assert len({ticket.id for ticket in queue}) == 4


def test_a_ticket_that_is_in_no_queue_can_leave() -> None:
    """A step that failed may have taken it out of its queue and no further."""
    queue = RequestQueue()
    ticket, other = enter(queue), enter(queue)
    queue._take_out(ticket)
    queue.leave(ticket)
    assert list(queue) == [other] and queue.faults() == []
