"""Claims about extproc/core/queue/flow_queue.py."""

from __future__ import annotations

from itertools import count

import pytest

from extproc.core.objective import NO_OBJECTIVE
from extproc.core.queue.fair_queueing import FairQueueing, Flow
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.queue.flow_queue import (
    SLACK,
    ClassedFlowQueue,
    FlowQueue,
    LastComeFlowQueue,
    TenantQueue,
)
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request, ResolvedRequest

BY_SIZE = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED, max_overtaken_s=30.0)


class Tickets:
    """Makes tickets of flows, in the order of their arrival."""

    def __init__(self) -> None:
        self._fairness = FairQueueing()
        self._ids = count(1)

    def flow(self, name: str, tenant: str = "t") -> Flow:
        return self._fairness.flow(NO_OBJECTIVE, name, tenant)

    def new(self, flow: str = "f", tenant: str = "t", size_class: int = 0) -> Ticket:
        request = Request(id="r", timeout_s=9.0)
        of_flow = self.flow(flow, tenant)
        ticket = Ticket(next(self._ids), request, 0.0, ResolvedRequest(), of_flow)
        ticket.order_class = size_class
        return ticket


def drained(queue: FlowQueue | TenantQueue) -> list[Ticket]:
    """The tickets in the order in which they are next."""
    found = []
    while queue:
        found.append(queue.head(0.0))
        queue.leave(found[-1])
    return found


def filled(queue: FlowQueue | TenantQueue, *tickets: Ticket) -> None:
    for ticket in tickets:
        queue.enter(ticket, is_back=False)


@pytest.mark.parametrize("queue", [FlowQueue(), ClassedFlowQueue(BY_SIZE), TenantQueue()])
def test_tickets_of_equal_use_and_size_come_by_arrival(queue: FlowQueue | TenantQueue) -> None:
    """Of one flow or of several."""
    made = Tickets()
    tickets = [made.new(flow) for flow in ("a", "b", "a", "c", "b")]
    filled(queue, *tickets)
    assert len(queue) == 5
    assert drained(queue) == tickets


def test_the_flow_that_used_less_is_next_also_if_that_changed_meanwhile() -> None:
    queue, made = FlowQueue(), Tickets()
    first, second = made.new("a"), made.new("b")
    filled(queue, first, second)
    assert queue.head(0.0) is first
    first.flow.virtual_s = 5.0
    assert queue.head(0.0) is second
    second.flow.virtual_s = 6.0
    assert queue.head(0.0) is first


def test_the_tenant_that_used_less_is_next_whatever_its_flows_used() -> None:
    queue, made = TenantQueue(), Tickets()
    first, second = made.new("a", tenant="x"), made.new("b", tenant="y")
    filled(queue, first, second)
    first.flow.tenant.virtual_s, second.flow.virtual_s = 1.0, 9.0
    assert queue.head(0.0) is second


def test_several_that_return_are_where_they_were() -> None:
    """Before, between and behind those that stayed; the next flow by them, too."""
    for queue in (FlowQueue(), TenantQueue()):
        made = Tickets()
        tickets = [made.new(flow) for flow in ("a", "b", "a", "b", "a")]
        filled(queue, *(tickets[number] for number in (1, 2, 4)))
        for number in (3, 0):
            queue.enter(tickets[number], is_back=True)
        assert drained(queue) == tickets


def test_the_last_ticket_takes_its_flow_and_its_tenant_along() -> None:
    """Nothing of them is left, and they may return."""
    queue, made = TenantQueue(), Tickets()
    ticket = made.new()
    filled(queue, ticket)
    assert queue.of_tenant(ticket.flow.tenant) is not None
    queue.leave(ticket)
    assert not queue and queue.of_tenant(ticket.flow.tenant) is None and not queue.tenants()
    filled(queue, ticket)
    assert queue.head(0.0) is ticket


def test_the_tickets_of_one_flow_are_known() -> None:
    queue, made = FlowQueue(), Tickets()
    ticket, other = made.new("a"), made.new("b")
    filled(queue, ticket, other)
    assert list(queue.tickets_of(made.flow("a")).values()) == [ticket]
    assert not queue.tickets_of(made.flow("unknown"))


@pytest.mark.parametrize("queue", [FlowQueue(), ClassedFlowQueue(BY_SIZE), TenantQueue()])
def test_a_ticket_that_is_not_queued_cannot_leave(queue: FlowQueue | TenantQueue) -> None:
    """To remove it twice is a bug of the caller."""
    ticket = Tickets().new()
    filled(queue, ticket)
    queue.leave(ticket)
    with pytest.raises(KeyError):
        queue.leave(ticket)


@pytest.mark.parametrize("queue", [FlowQueue(), TenantQueue()])
def test_an_empty_queue_has_no_head(queue: FlowQueue | TenantQueue) -> None:
    with pytest.raises(IndexError):
        queue.head(0.0)


@pytest.mark.parametrize("queue", [FlowQueue(), TenantQueue()])
def test_entries_of_flows_that_left_do_not_accumulate(queue: FlowQueue | TenantQueue) -> None:
    """Two tenants wait; thousands of others come and go behind them, never first."""
    made = Tickets()
    filled(queue, made.new("a", tenant="a"), made.new("b", tenant="b"))
    for number in range(1000):
        ticket = made.new(f"f{number}", tenant=f"t{number}")
        queue.enter(ticket, is_back=False)
        queue.leave(ticket)
    assert len(queue._order._entries) <= 2 * 3 + SLACK + 1


def test_a_flow_whose_tickets_left_gets_no_entry_when_entries_are_dropped() -> None:
    order, made = FlowQueue()._order, Tickets()
    waiting, empty = made.flow("a"), made.flow("b")
    for _ in range(SLACK + 5):
        order.push(waiting, 1)
    order.tidy({waiting: None, empty: None}, {waiting: 1}.get)
    assert [entry[-1] for entry in order._entries] == [waiting]


def test_by_size_only_the_order_within_a_flow_changes() -> None:
    """A short ticket of another flow does not pass the flow that used less."""
    queue, made = ClassedFlowQueue(BY_SIZE), Tickets()
    long, short = made.new("a", size_class=3), made.new("a", size_class=1)
    foreign = made.new("b", size_class=-9)
    filled(queue, long, short, foreign)
    foreign.flow.virtual_s = 1.0
    assert [queue.head(0.0), queue.first()] == [short, long]
    queue.leave(short)
    assert queue.head(0.0) is long


def test_by_size_a_ticket_that_waited_for_the_bound_is_next() -> None:
    queue, made = ClassedFlowQueue(BY_SIZE), Tickets()
    long, short = made.new(size_class=3), made.new(size_class=1)
    filled(queue, long, short)
    assert (queue.head(29.9), queue.head(30.0)) == (short, long)


def test_the_newest_is_next_and_the_oldest_turn_goes_with_it() -> None:
    """A ticket that returns is where it was; whichever leaves, the oldest turn does."""
    fairness = FairQueueing()
    flow = fairness.flow(NO_OBJECTIVE, "", "")
    queue = LastComeFlowQueue()
    tickets = [
        Ticket(number, Request(id="r", timeout_s=1.0), 0.0, ResolvedRequest(), flow)
        for number in (1, 2, 3, 4)
    ]
    for ticket in tickets:
        queue.enter(ticket, is_back=False)
    assert (queue.head(0.0), queue.place_of(tickets[3])) == (tickets[3], 1)
    queue.leave(tickets[1])
    queue.leave(tickets[3])
    assert (queue.head(0.0), queue.place_of(tickets[2])) == (tickets[2], 3)
    queue.enter(tickets[1], is_back=True)
    assert (queue.head(0.0), queue.place_of(tickets[2])) == (tickets[2], 2)
    for ticket in (tickets[2], tickets[1], tickets[0]):
        assert queue.head(0.0) is ticket
        queue.leave(ticket)
    assert len(queue) == 0 and list(queue) == []


def test_in_order_of_arrival_a_ticket_is_compared_by_its_own_number() -> None:
    flow = FairQueueing().flow(NO_OBJECTIVE, "", "")
    ticket = Ticket(7, Request(id="r", timeout_s=1.0), 0.0, ResolvedRequest(), flow)
    queue = TenantQueue()
    queue.enter(ticket, is_back=False)
    assert queue.place_of(queue.head(0.0)) == 7
