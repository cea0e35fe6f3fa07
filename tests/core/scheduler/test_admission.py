"""Claims about extproc/core/scheduler/admission.py: which requests may be queued."""

from __future__ import annotations

from random import Random

from extproc.core.decision import Decision, Queued
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.queue.limits import SHORT_BODY_BYTES, QueueLimits
from extproc.core.rejection import Reason, Rejected
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from tests.fakes.core_events import listen
from tests.fakes.small_fleet import RecordingListener

MIB = 1024 * 1024
CRITICAL = Objective(name="critical", criticality=Criticality.CRITICAL)


class Hall:
    """A fleet without servers: every request that may be queued is."""

    def __init__(self, queue_max_body_bytes: int, *, queue_max_requests: int = 100) -> None:
        self.listener = RecordingListener()
        options = DispatcherOptions(
            queue=QueueLimits(max_requests=queue_max_requests, max_body_bytes=queue_max_body_bytes),
            resolver=ResolverOptions(objectives=Objectives(by_name={"critical": CRITICAL})),
        )
        self.dispatcher = listen(Dispatcher(Random(1), options), self.listener)

    def submit(self, body_bytes: int, objective: str | None = None) -> Decision:
        request = Request(id="r", timeout_s=60, objective=objective, body_bytes=body_bytes)
        return self.dispatcher.submit(request, 100.0)

    def enter(self, body_bytes: int) -> Queued:
        outcome = self.submit(body_bytes)
        assert isinstance(outcome, Queued)
        return outcome


def test_long_bodies_wait_up_to_the_bytes_that_are_set() -> None:
    """And again once others left; for bodies up to 64 KiB only the number counts."""
    hall = Hall(8 * MIB)
    first = hall.enter(4 * MIB)
    hall.enter(4 * MIB - SHORT_BODY_BYTES)
    hall.enter(SHORT_BODY_BYTES)
    assert hall.dispatcher.queue.body_bytes == 8 * MIB
    assert isinstance(hall.submit(SHORT_BODY_BYTES + 1), Rejected)
    hall.enter(SHORT_BODY_BYTES)
    hall.dispatcher.withdraw(first.ticket, 100.0)
    hall.enter(3 * MIB)
    for ticket in list(hall.dispatcher.queue):
        hall.dispatcher.withdraw(ticket, 100.0)
    assert hall.dispatcher.queue.body_bytes == 0


def test_a_critical_request_evicts_one_with_enough_bytes() -> None:
    """The newest of those; one with too few bytes stays, and so do all if none has enough."""
    hall = Hall(8 * MIB)
    older, newer, small = hall.enter(4 * MIB), hall.enter(3 * MIB), hall.enter(MIB)
    assert isinstance(hall.submit(3 * MIB, "critical"), Queued)
    assert set(hall.listener.settlements) == {newer.ticket.id}
    assert isinstance(hall.submit(8 * MIB, "critical"), Rejected)
    assert older.ticket.is_waiting and small.ticket.is_waiting
    assert hall.dispatcher.queue.body_bytes == 8 * MIB


def test_the_caller_learns_which_bound_was_met() -> None:
    hall = Hall(MIB, queue_max_requests=2)
    long = Request(id="r", timeout_s=60, body_bytes=2 * MIB)
    assert hall.dispatcher.lacks_bytes(long)
    hall.enter(0)
    hall.enter(0)
    short = Request(id="r", timeout_s=60, body_bytes=100)
    assert not hall.dispatcher.lacks_bytes(short)
    rejected = hall.dispatcher.submit(short, 100.0)
    assert isinstance(rejected, Rejected)
    assert rejected.reason in (Reason.QUEUE_FULL, Reason.NO_ENDPOINT)
