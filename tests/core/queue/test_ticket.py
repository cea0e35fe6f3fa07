"""Claims about extproc/core/queue/ticket.py."""

from __future__ import annotations

import pytest

from extproc.core.constraints import Constraints
from extproc.core.objective import NO_OBJECTIVE, Criticality, Objective
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.ticket import UNKNOWN_SIZE, Ticket
from extproc.core.request import Request
from extproc.core.resolved_request import ResolvedRequest


def ticket(id_: int = 1, objective: Objective = NO_OBJECTIVE, timeout_s: float = 10.0) -> Ticket:
    request = Request(id="r", timeout_s=timeout_s, body_bytes=7)
    resolved = ResolvedRequest(constraints=Constraints(model="a"), objective=objective)
    return Ticket(id_, request, 100.0, resolved, FairQueueing().flow(objective, "f"))


def test_its_deadline_is_the_longest_wait_of_its_request() -> None:
    assert ticket(timeout_s=2.5).deadline == 102.5


def test_tickets_compare_by_arrival() -> None:
    """Whatever their deadlines are: heaps of tickets need an order."""
    first, second = ticket(1, timeout_s=50.0), ticket(2, timeout_s=1.0)
    assert first < second and sorted([second, first]) == [first, second]


@pytest.mark.parametrize(
    ("objective", "key"),
    [
        (NO_OBJECTIVE, (Criticality.STANDARD, None)),
        (Objective(name="a", criticality=Criticality.CRITICAL), (Criticality.CRITICAL, None)),
        (Objective(name="a", ttft_s=1.0), (Criticality.STANDARD, "a")),
        (Objective(name="b", queue_s=1.0), (Criticality.STANDARD, "b")),
    ],
)
def test_only_objectives_with_an_slo_have_a_queue_of_their_own(
    objective: Objective, key: tuple[Criticality, str | None]
) -> None:
    """All others of a criticality share one, in which weights decide."""
    assert ticket(objective=objective).subqueue_key == key
    assert ticket(objective=objective).criticality is key[0]


def test_a_new_ticket_waits_anywhere_without_a_size() -> None:
    entered = ticket()
    assert entered.is_waiting and entered.constraints == entered.resolved.constraints
    assert (entered.reservation, entered.reserved_at, entered.pinned_to) == (None, None, None)
    assert (entered.expected_slot_s, entered.size_class) == UNKNOWN_SIZE


def test_the_bytes_of_its_body_are_counted_as_they_were_when_it_entered() -> None:
    """Its request may be replaced when its names are resolved: the books of the queue must not
    change with that."""
    entered = ticket()
    entered.request = Request(id="r", timeout_s=1.0, body_bytes=0)
    assert entered.body_bytes == 7
