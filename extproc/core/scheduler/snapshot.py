"""The line at a glance: how many wait, for how long, and how long it will take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from extproc.core.objective import Criticality

if TYPE_CHECKING:
    from extproc.core.scheduler.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSnapshot:
    """Everybody who waits, at one moment.

    `body_bytes` is how much of their bodies is kept.
    `longest_wait_s` is how long who came first has waited, None when nobody waits.
    `expected_s` is when a line of this length will have been served, None when nobody waits
    or nothing is known about its pace yet.
    """

    waiting: int
    max_waiting: int
    body_bytes: int
    max_body_bytes: int
    by_class: Mapping[str, int]
    longest_wait_s: float | None
    expected_s: float | None


def take_queue_snapshot(dispatcher: Dispatcher, now: float) -> QueueSnapshot:
    """The line as it is at `now`. O(classes), without side effects."""
    line = dispatcher.queue
    head = line.first_arrived()
    return QueueSnapshot(
        waiting=len(line),
        max_waiting=dispatcher.options.max_queued,
        body_bytes=line.body_bytes,
        max_body_bytes=dispatcher.options.max_queued_bytes,
        by_class={each.label: line.waiting_in(each) for each in Criticality},
        longest_wait_s=None if head is None else max(0.0, now - head.entered_at),
        expected_s=None if head is None else dispatcher.expected_s(len(line)),
    )
