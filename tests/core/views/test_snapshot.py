"""Claims about extproc/core/views/snapshot.py."""

from __future__ import annotations

from extproc.core.views.snapshot import take_queue_snapshot
from tests.fakes.small_fleet import SmallFleet


def test_an_empty_queue() -> None:
    """It has no longest wait, and no expected time."""
    status = take_queue_snapshot(SmallFleet(1, queue_max_requests=7).dispatcher.view, 100.0)
    assert (status.queued, status.max_requests) == (0, 7)
    assert status.by_criticality == {"critical": 0, "standard": 0, "sheddable": 0}
    assert status.longest_wait_s is None and status.expected_s is None


def test_the_first_to_arrive_waited_longest() -> None:
    """And the expected time is unknown before the first assignment."""
    fleet = SmallFleet(1)
    fleet.pick()
    for _ in range(2):
        fleet.queue()
        fleet.now += 2.0
    status = take_queue_snapshot(fleet.dispatcher.view, fleet.now)
    assert status.queued == status.by_criticality["standard"] == 2
    assert status.longest_wait_s == 4.0 and status.expected_s is None


def test_the_expected_time_follows_the_drain_rate() -> None:
    """It is the expected time of the last queued request."""
    fleet = SmallFleet(1)
    lease = fleet.pick()
    ticket = fleet.queue()
    for _ in range(3):
        fleet.queue()
    fleet.now += 3.0
    fleet.finish(lease)
    fleet.now += 3.0
    fleet.finish(fleet.handed(ticket))
    status = take_queue_snapshot(fleet.dispatcher.view, fleet.now)
    assert status.queued == 2
    assert (
        status.expected_s
        == fleet.dispatcher.view.position_of(list(fleet.dispatcher.queue)[-1], fleet.now)[2]
    )
