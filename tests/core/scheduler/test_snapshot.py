"""Claims about extproc/core/scheduler/snapshot.py."""

from __future__ import annotations

from extproc.core.scheduler.snapshot import take_queue_snapshot
from tests.fakes.small_fleet import SmallFleet


def test_nobody_waits() -> None:
    """Then there is no longest wait, and nothing to expect."""
    status = take_queue_snapshot(SmallFleet(1, max_queued=7).dispatcher, 100.0)
    assert (status.waiting, status.max_waiting) == (0, 7)
    assert status.by_class == {"critical": 0, "standard": 0, "sheddable": 0}
    assert status.longest_wait_s is None and status.expected_s is None


def test_who_came_first_waited_longest() -> None:
    """And when all were served is not told before a first one was."""
    fleet = SmallFleet(1)
    fleet.pick()
    for _ in range(2):
        fleet.queue()
        fleet.now += 2.0
    status = take_queue_snapshot(fleet.dispatcher, fleet.now)
    assert status.waiting == status.by_class["standard"] == 2
    assert status.longest_wait_s == 4.0 and status.expected_s is None


def test_the_expected_end_of_the_line_follows_its_pace() -> None:
    """It is the time that the last one in line is told."""
    fleet = SmallFleet(1)
    lease = fleet.pick()
    ticket = fleet.queue()
    for _ in range(3):
        fleet.queue()
    fleet.now += 3.0
    fleet.finish(lease)
    fleet.now += 3.0
    fleet.finish(fleet.handed(ticket))
    status = take_queue_snapshot(fleet.dispatcher, fleet.now)
    assert status.waiting == 2
    assert status.expected_s == fleet.dispatcher.expected_s(2) != fleet.dispatcher.expected_s(1)
