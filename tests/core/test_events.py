"""Claims about extproc/core/events.py: what the shell hears, and when."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.events import (
    MEMBERSHIP_CHANGED,
    CallScope,
    Outbox,
    ScrapeRequested,
    Settled,
    WakeRequested,
)
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request

HERE = Address("10.0.0.1", 8080)
REJECTED = Rejected(reason=Reason.CANCELLED, waited_s=0.0, retry_after_s=1.0)


def ticket() -> Ticket:
    return RequestQueue().enter(Request(id="r", timeout_s=9.0), 0.0)


class Shell:
    """Takes the events after each call, and counts repairs."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.repairs = 0
        self.taken: list[object] = []
        self.call = CallScope(self.outbox, self._repair)
        self.call.announce = lambda: self.taken.extend(self.outbox.take())

    def _repair(self) -> None:
        self.repairs += 1


def test_events_are_taken_once_and_in_order() -> None:
    outbox = Outbox()
    assert not outbox
    outbox.scrape(HERE)
    outbox.membership_changed()
    assert outbox.take() == [ScrapeRequested(HERE), MEMBERSHIP_CHANGED]
    assert not outbox and outbox.take() == []


def test_of_several_wake_ups_the_earliest_is_requested() -> None:
    """One timer is enough: `advance` says when it must be called next."""
    outbox = Outbox()
    outbox.wake_at(None)
    assert not outbox
    for when in (5.0, 3.0, 4.0, None):
        outbox.wake_at(when)
    assert outbox.take() == [WakeRequested(3.0)]
    outbox.wake_at(9.0)
    assert outbox.take() == [WakeRequested(9.0)], "the last call's is over"


def test_a_settled_ticket_waits_no_more() -> None:
    outbox, settled = Outbox(), ticket()
    outbox.settle(settled, REJECTED)
    assert not settled.is_waiting
    assert outbox.take() == [Settled(settled, REJECTED)]


def test_a_settlement_that_the_caller_returns_is_no_event() -> None:
    """That of another ticket stays one."""
    outbox, returned, other = Outbox(), ticket(), ticket()
    outbox.scrape(HERE)
    outbox.settle(other, REJECTED)
    outbox.settle(returned, REJECTED)
    assert outbox.settlement_of(returned) is REJECTED
    assert outbox.settlement_of(returned) is None
    assert outbox.take() == [ScrapeRequested(HERE), Settled(other, REJECTED)]


def test_nobody_is_called_in_the_middle_of_a_decision() -> None:
    """Nested calls are one: the shell hears of all of it at the end of the outermost."""
    shell = Shell()
    with shell.call:
        shell.outbox.scrape(HERE)
        with shell.call:
            shell.outbox.membership_changed()
        assert shell.taken == []
    assert shell.taken == [ScrapeRequested(HERE), MEMBERSHIP_CHANGED]


def test_a_call_without_events_announces_nothing() -> None:
    shell = Shell()
    shell.call.announce = lambda: pytest.fail("there is nothing to take")
    with shell.call:
        pass


def test_a_call_that_raises_is_repaired_and_announced() -> None:
    """The exception goes on to the caller; what was decided before it is not lost."""
    shell = Shell()

    def broken_call() -> None:
        with shell.call:
            shell.outbox.scrape(HERE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken_call()
    assert shell.repairs == 1 and shell.taken == [ScrapeRequested(HERE)]


def test_a_step_that_failed_is_repaired_once() -> None:
    """Its decision stands; the next call needs no repair."""
    shell = Shell()
    error = ValueError("a bug")
    with shell.call:
        shell.outbox.step_failed("recording", error)
    (event,) = shell.taken
    assert (event.step, event.error) == ("recording", error)  # type: ignore[attr-defined]
    with shell.call:
        pass
    assert shell.repairs == 1


def test_a_scope_can_be_used_without_a_shell() -> None:
    """The events wait until they are taken."""
    outbox = Outbox()
    with CallScope(outbox, lambda: None):
        outbox.scrape(HERE)
    assert outbox.take() == [ScrapeRequested(HERE)]
