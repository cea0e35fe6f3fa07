"""A snapshot of the queue: how many requests are queued, for how long, and the expected wait."""

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

    queued: int
    max_requests: int
    body_bytes: int
    max_body_bytes: int
    by_criticality: Mapping[str, int]
    longest_wait_s: float | None
    expected_s: float | None


def take_queue_snapshot(dispatcher: Dispatcher, now: float) -> QueueSnapshot:
    """The queue as it is at `now`. O(criticalities), without side effects."""
    queue = dispatcher.queue
    first = queue.first_arrived()
    return QueueSnapshot(
        queued=len(queue),
        max_requests=dispatcher.options.queue_max_requests,
        body_bytes=queue.body_bytes,
        max_body_bytes=dispatcher.options.queue_max_body_bytes,
        by_criticality={each.label: queue.count_of(each) for each in Criticality},
        longest_wait_s=None if first is None else max(0.0, now - first.entered_at),
        expected_s=None if first is None else dispatcher.expected_s(len(queue)),
    )
