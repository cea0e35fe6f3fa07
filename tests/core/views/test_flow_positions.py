"""Claims about extproc/core/views/flow_positions.py."""

from __future__ import annotations

from extproc.core.queue.flow_order import ARRIVAL_ORDER, Discipline, QueueOrder
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.ticket import UNKNOWN_SIZE, ExpectedSize, Ticket
from extproc.core.request import UNCONSTRAINED_REQUEST, Request
from extproc.core.views.flow_positions import FlowPositions, arrived_before

BY_SIZE = QueueOrder(discipline=Discipline.SHORTEST_EXPECTED)


def tickets(*sizes: ExpectedSize) -> list[Ticket]:
    queue = RequestQueue()
    request = Request(id="r", timeout_s=99.0)
    return [
        queue.enter(request, float(second), UNCONSTRAINED_REQUEST, size)
        for second, size in enumerate(sizes)
    ]


LONG, SHORT, UNKNOWN = (20.0, 4), (1.0, -2), UNKNOWN_SIZE


def positions(found: list[Ticket], order: QueueOrder, now: float) -> FlowPositions:
    return FlowPositions({one.id: one for one in found}, order, now, usual_slot_s=5.0)


def test_in_the_order_of_arrival() -> None:
    found = tickets(LONG, SHORT, UNKNOWN)
    of = positions(found, ARRIVAL_ORDER, 3.0)
    assert [of.ahead_of(one) for one in found] == [0, 1, 2]
    assert [of.work_ahead_s(one) for one in found] == [0.0, 0.0, 0.0]


def test_by_size_the_work_ahead_counts() -> None:
    found = tickets(LONG, SHORT, UNKNOWN)
    of = positions(found, BY_SIZE, 3.0)
    assert [of.ahead_of(one) for one in found] == [2, 0, 1]
    assert [of.work_ahead_s(one) for one in found] == [6.0, 0.0, 1.0]
    assert [arrived_before(one, (each.id for each in found)) for one in found] == [0, 1, 2]


def test_whoever_waited_for_the_bound_is_first() -> None:
    found = tickets(LONG, SHORT, UNKNOWN)
    of = positions(found, BY_SIZE, 30.5)
    assert [of.ahead_of(one) for one in found] == [0, 1, 2]
    assert of.work_ahead_s(found[1]) == 20.0
