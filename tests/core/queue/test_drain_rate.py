"""Claims about extproc/core/queue/drain_rate.py."""

from __future__ import annotations

import pytest

from extproc.core.queue.drain_rate import DrainRate


def test_a_steady_queue() -> None:
    """One assignment every 2 s and four queued requests: an arrival is served in 10 s."""
    pace = DrainRate()
    for when in (0.0, 2.0, 4.0, 6.0):
        pace.slot_assigned(when)
    assert pace.expected_s(5) == pytest.approx(10.0)


def test_the_mean_follows() -> None:
    """A fifth of a new gap enters the mean."""
    pace = DrainRate()
    for when in (0.0, 2.0, 9.0):
        pace.slot_assigned(when)
    assert pace.expected_s(1) == pytest.approx(2.0 + 0.2 * (7.0 - 2.0))


def test_an_empty_queue_is_no_slow_queue() -> None:
    """An hour with an empty queue does not count as a gap."""
    pace = DrainRate()
    pace.slot_assigned(0.0)
    pace.slot_assigned(2.0)
    pace.queue_emptied()
    pace.slot_assigned(3600.0)
    assert pace.expected_s(1) == pytest.approx(2.0)
