"""Claims about extproc/core/queue.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.queue import Line, Ticket
from extproc.core.request import Request


def enter(line: Line, timeout_s: float = 10.0, now: float = 0.0) -> Ticket:
    return line.enter(Request(id="r", timeout_s=timeout_s), now)


def test_first_come_first_served() -> None:
    """The head is the oldest; who leaves is passed over; an empty line has no head."""
    line = Line()
    assert line.head() is None
    first, second, third = (enter(line) for _ in range(3))
    line.leave(second)
    assert (line.head(), list(line), len(line)) == (first, [first, third], 2)
    line.leave(first)
    assert line.head() is third
    line.leave(third)
    assert line.head() is None and not line


def test_a_ticket_leaves_once() -> None:
    """Taking out a ticket that is not in line is a bug of the caller."""
    line = Line()
    ticket = enter(line)
    line.leave(ticket)
    assert not ticket.is_waiting
    with pytest.raises(KeyError):
        line.leave(ticket)


def test_expired_in_order_of_deadline() -> None:
    """Deadlines come in their own order, not in that of arrival; the last moment counts."""
    line = Line()
    late, early, never = enter(line, 5.0), enter(line, 3.0), enter(line, 99.0)
    assert line.next_deadline() == 3.0
    assert line.expired(2.999) == []
    assert line.expired(5.0) == [early, late]
    assert list(line) == [never]
    assert line.next_deadline() == 99.0


def test_who_left_has_no_deadline() -> None:
    """A ticket that was served does not wake anybody later."""
    line = Line()
    line.leave(enter(line, 3.0))
    assert line.next_deadline() is None
    assert line.expired(4.0) == []


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 3)), max_size=60), st.data())
def test_against_a_plain_list(events: list[tuple[float, int]], data: st.DataObject) -> None:
    """Whatever comes, leaves and expires: the line is the list of those who wait, in order."""
    line, plain, now = Line(), list[Ticket](), 0.0
    for number, kind in events:
        if kind < 2:
            plain.append(enter(line, number, now))
        elif kind == 2 and plain:
            ticket = data.draw(st.sampled_from(plain))
            line.leave(ticket)
            plain.remove(ticket)
        elif kind == 3:
            now += number / 2
            due = sorted((t for t in plain if t.deadline <= now), key=lambda t: (t.deadline, t.id))
            assert line.expired(now) == due
            plain = [t for t in plain if t.deadline > now]
        assert list(line) == plain
        assert line.next_deadline() == min((t.deadline for t in plain), default=None)


def test_deadlines_of_the_served_do_not_pile_up() -> None:
    """A hundred thousand served requests leave no heap of deadlines behind."""
    line = Line()
    enter(line, 1.0)
    for _ in range(100_000):
        line.leave(enter(line, 3600.0))
    assert len(line._deadlines) < 200
