"""Claims about extproc/core/queue/constraint_queue.py."""

from __future__ import annotations

from itertools import count

import pytest

from extproc.core.constraints import UNCONSTRAINED
from extproc.core.objective import NO_OBJECTIVE, Criticality, Objective
from extproc.core.queue.constraint_queue import OVERDUE, ConstraintQueue
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.flow_order import ARRIVAL_ORDER, Discipline, QueueOrder
from extproc.core.queue.flow_queue import SLACK
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request, ResolvedRequest

GOLD = Objective(name="gold", criticality=Criticality.CRITICAL)
CHEAP = Objective(name="cheap", criticality=Criticality.SHEDDABLE)
CHAT = Objective(name="chat", queue_s=1.0)
AGENT = Objective(name="agent", queue_s=1.0)
BY_SIZE = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED, max_overtaken_s=30.0)


class Tickets:
    """One queue, and tickets that enter it one after the other."""

    def __init__(self, order: QueueOrder = ARRIVAL_ORDER) -> None:
        self.queue = ConstraintQueue(UNCONSTRAINED, order)
        self.attainment = SloAttainment()
        self._fairness = FairQueueing()
        self._ids = count(1)

    def enter(
        self, objective: Objective = NO_OBJECTIVE, tenant: str = "", size_class: int = 0
    ) -> Ticket:
        flow = self._fairness.flow(objective, "", tenant)
        resolved = ResolvedRequest(objective=objective)
        ticket = Ticket(next(self._ids), Request(id="r", timeout_s=9.0), 0.0, resolved, flow)
        ticket.order_class = size_class
        self.queue.enter(ticket)
        return ticket

    def next(self, now: float = 0.0) -> Ticket:
        return self.queue.next_by_priority(self.attainment, now)[1]


def test_criticality_is_first_and_arrival_is_last() -> None:
    tickets = Tickets()
    cheap, usual, later, gold = (
        tickets.enter(objective) for objective in (CHEAP, NO_OBJECTIVE, NO_OBJECTIVE, GOLD)
    )
    for expected in (gold, usual, later, cheap):
        assert tickets.next() is expected
        tickets.queue.leave(expected)
    assert not tickets.queue


def test_of_one_criticality_the_objective_that_misses_its_slo_is_next() -> None:
    """Its attainment changes while its tickets are queued."""
    tickets = Tickets()
    chat, agent = tickets.enter(CHAT), tickets.enter(AGENT)
    assert tickets.next() is chat
    tickets.attainment.record("agent", was_met=False, now=0.0)
    assert tickets.next() is agent
    tickets.attainment.record("chat", was_met=False, now=0.0)
    assert tickets.next() is chat


def test_a_tenant_that_used_less_is_next() -> None:
    tickets = Tickets()
    first, second = tickets.enter(tenant="a"), tickets.enter(tenant="b")
    first.flow.tenant.virtual_s = 1.0
    assert tickets.next() is second


def test_the_key_of_an_overdue_ticket_is_below_every_size() -> None:
    """Two queues compare their next tickets by their keys; in the order of arrival no ticket is
    ever overdue."""
    tickets = Tickets(BY_SIZE)
    tickets.enter(size_class=4)
    (*_, size_class, _), _ = tickets.queue.next_by_priority(tickets.attainment, 29.9)
    assert size_class == 4
    (*_, size_class, _), _ = tickets.queue.next_by_priority(tickets.attainment, 30.0)
    assert size_class == OVERDUE
    by_arrival = Tickets()
    by_arrival.enter()
    (*_, size_class, _), _ = by_arrival.queue.next_by_priority(tickets.attainment, 1e9)
    assert size_class == 0


def test_an_empty_queue_has_no_next_ticket() -> None:
    tickets = Tickets()
    for ticket in [tickets.enter(), tickets.enter(GOLD)]:
        tickets.queue.leave(ticket)
    with pytest.raises(IndexError):
        tickets.next()
    with pytest.raises(IndexError):
        tickets.queue.first_arrived()


def test_a_ticket_leaves_only_the_queue_that_it_is_in() -> None:
    """A second removal is a bug of the caller, and changes no count."""
    tickets = Tickets()
    ticket, other = tickets.enter(), tickets.enter()
    tickets.queue.leave(ticket)
    with pytest.raises(KeyError):
        tickets.queue.leave(ticket)
    assert len(tickets.queue) == 1 and tickets.queue.first_arrived() is other
    assert ticket.queued_in is None and other.queued_in is tickets.queue


def test_a_ticket_that_returns_has_its_arrival_position() -> None:
    tickets = Tickets()
    first, second = tickets.enter(), tickets.enter()
    tickets.queue.leave(first)
    assert tickets.queue.first_arrived() is second
    tickets.queue.enter(first, is_back=True)
    assert tickets.queue.first_arrived() is first is tickets.next()


def test_tickets_that_left_do_not_accumulate() -> None:
    """One ticket waits for long, while a thousand others are served by priority."""
    tickets = Tickets()
    tickets.enter(CHEAP)
    for _ in range(1000):
        tickets.queue.leave(tickets.enter(GOLD))
    assert len(tickets.queue._arrivals) <= 2 * len(tickets.queue) + SLACK + 1
