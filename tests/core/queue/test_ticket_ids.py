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


def test_those_of_another_process_come_first_and_times_still_count() -> None:
    """Of an earlier epoch, or of the same one."""
    ids = TicketIds()
    ids.use(5 << 44, 2.0)
    ids.use(4 << 44, 1.0)
    first, second = ids.next(3.0), ids.next(4.0)
    assert 5 << 44 < first < ids.at(3.5) < second
    other = TicketIds()
    other.use(first, 3.0)
    assert other.next(4.0) == second
