"""A snapshot of the queue: how many requests wait, how long, and the expected wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from extproc.core.objective import Criticality
from extproc.core.scheduler.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """The queue at one moment.

    `body_bytes` are the bytes of request bodies that are held.
    `longest_wait_s` is the wait of the request that arrived first, None if the queue is empty.
    `expected_s` is the time in which a queue of this length is served, None if the queue is empty
    or nothing is known about its rate yet.
    """

    waiting: int
    max_waiting: int
    body_bytes: int
    max_body_bytes: int
    by_class: Mapping[str, int]
    longest_wait_s: float | None
    expected_s: float | None


def take_queue_snapshot(dispatcher: Dispatcher, now: float) -> QueueSnapshot:
    """The queue as it is at `now`. O(criticalities), without side effects."""
    queue = dispatcher.queue
    first = queue.first_arrived()
    return QueueSnapshot(
        waiting=len(queue),
        max_waiting=dispatcher.options.max_queued,
        body_bytes=queue.body_bytes,
        max_body_bytes=dispatcher.options.max_queued_bytes,
        by_class={each.label: queue.waiting_in(each) for each in Criticality},
        longest_wait_s=None if first is None else max(0.0, now - first.entered_at),
        expected_s=None if first is None else dispatcher.expected_s(len(queue)),
    )
