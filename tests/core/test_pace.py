"""Claims about extproc/core/pace.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.pace import MAX_RETRY_S, MIN_RETRY_S, Pace


def test_a_steady_line() -> None:
    """One hand-over every 2 s and four who wait: a newcomer is served in 10 s."""
    pace = Pace()
    for when in (0.0, 2.0, 4.0, 6.0):
        pace.handed_over(when)
    assert pace.retry_after_s(4) == pytest.approx(10.0)


def test_the_mean_follows() -> None:
    """Of a new gap a fifth enters the mean."""
    pace = Pace()
    for when in (0.0, 2.0, 9.0):
        pace.handed_over(when)
    assert pace.retry_after_s(0) == pytest.approx(2.0 + 0.2 * (7.0 - 2.0))


def test_an_empty_line_is_no_slow_line() -> None:
    """An hour in which nobody waited does not count as a gap."""
    pace = Pace()
    pace.handed_over(0.0)
    pace.handed_over(2.0)
    pace.line_emptied()
    pace.handed_over(3600.0)
    assert pace.retry_after_s(0) == pytest.approx(2.0)


@given(st.lists(st.floats(0, 1e6), max_size=20), st.integers(0, 10**6))
def test_a_retry_is_within_its_bounds(gaps: list[float], waiting: int) -> None:
    """Whatever happened, the advice is between a second and a minute."""
    pace, now = Pace(), 0.0
    for gap in gaps:
        now += gap
        pace.handed_over(now)
    assert MIN_RETRY_S <= pace.retry_after_s(waiting) <= MAX_RETRY_S
