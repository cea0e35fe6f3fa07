"""A snapshot of the queue: how many requests are queued, for how long, and the expected wait."""

from collections.abc import Mapping
from dataclasses import dataclass

from extproc.core.objective import Criticality
from extproc.core.views.view import View
from extproc.core.views.waits import ModelQueue, explain_idle_slots


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """The queue at one moment.

    `body_bytes` are the bytes of request bodies that are held.
    `longest_wait_s` is the wait of the request that arrived first, None if the queue is empty.
    `expected_s` is the time until the last queued request is served that no session and no flow
    holds back, None if there is none or nothing is known about its rate yet.
    `by_model` has every model that the fleet serves or that requests wait for. `idle_note` says why
    requests are queued although slots are idle; empty if there are no such slots or requests.
    """

    queued: int
    max_requests: int
    body_bytes: int
    max_body_bytes: int
    by_criticality: Mapping[str, int]
    longest_wait_s: float | None
    expected_s: float | None
    by_model: Mapping[str, ModelQueue]
    idle_note: str


def take_queue_snapshot(view: View, now: float) -> QueueSnapshot:
    """The queue as it is at `now`. O(endpoints + constraint queues), without side effects."""
    queue = view.queue
    by_model = view.waits().by_model()
    idle_slots = sum(view.idle_slots(endpoint) for endpoint in view.fleet)
    first = queue.first_arrived()
    return QueueSnapshot(
        queued=len(queue),
        max_requests=view.options.queue.max_requests,
        body_bytes=queue.body_bytes,
        max_body_bytes=view.options.queue.max_body_bytes,
        by_criticality={each.label: queue.count_of(each) for each in Criticality},
        longest_wait_s=None if first is None else max(0.0, now - first.entered_at),
        expected_s=None if first is None else view.all_served_s(now),
        by_model=by_model,
        idle_note=explain_idle_slots(by_model, idle_slots),
    )
