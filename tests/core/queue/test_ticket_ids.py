"""Claims about extproc/core/queue/ticket_ids.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.queue.ticket_ids import TicketIds


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
