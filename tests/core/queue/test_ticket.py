"""Claims about extproc/core/queue/ticket.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.constraints import Constraints
from extproc.core.objective import NO_OBJECTIVE, Criticality, Objective
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.ticket import UNKNOWN_SIZE, Ticket, TicketIds
from extproc.core.request import Request, ResolvedRequest


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
    assert (entered.expected_slot_s, entered.order_class) == UNKNOWN_SIZE


def test_the_bytes_of_its_body_are_counted_as_they_were_when_it_entered() -> None:
    """Its request may be replaced when its names are resolved: the books of the queue must not
    change with that."""
    entered = ticket()
    entered.request = Request(id="r", timeout_s=1.0, body_bytes=0)
    assert entered.body_bytes == 7


@given(st.lists(st.integers(0, 3), min_size=1, max_size=50))
def test_ids_rise_however_many_arrive_at_once(pauses_us: list[int]) -> None:
    ids, now_us, given_ids = TicketIds(), 0, []
    for pause_us in pauses_us:
        now_us += pause_us
        given_ids.append(ids.next(now_us / 1e6))
    assert given_ids == sorted(set(given_ids))
    assert ids.last == given_ids[-1]


def test_one_that_arrived_between_two_others_has_an_id_between_theirs() -> None:
    ids = TicketIds()
    before, after = ids.next(3.0), ids.next(4.0)
    assert before < ids.at(3.5) < after


def test_the_ids_of_another_process_of_the_machine_go_on() -> None:
    """Whether it has used the next ones already or not."""
    ids, other = TicketIds(), TicketIds()
    for each in (ids, other):
        each.begin(5 << 44, 2.0)
    first = ids.next(3.0)
    assert first > 5 << 44
    other.begin(5 << 44, 3.5)
    other.use(first, 3.0)
    assert other.next(4.0) == ids.next(4.0)
    other.use(other.last + 1000, 4.0)
    assert other.next(4.0) == other.last > ids.last + 1000


def test_those_of_another_leader_come_first_and_their_times_count_too() -> None:
    """One that arrived before this leader began is placed among them."""
    before, ids = TicketIds(), TicketIds()
    before.begin(4 << 44, 0.0)
    early, late = before.next(1001.0), before.next(1003.0)
    ids.begin(5 << 44, 9.0)  # its clock is another one: 1,000 s behind
    unknown = ids.at(2.0)
    assert late < unknown < ids.next(10.0)
    for id_, arrived_at in ((late, 3.0), (early, 1.0)):
        ids.use(id_, arrived_at)
    assert early < ids.at(2.0) < late < ids.at(8.9) <= 5 << 44
    assert 5 << 44 < ids.at(9.5) < ids.next(10.0)
