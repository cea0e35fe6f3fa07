"""Claims about extproc/app/monitoring/loop_lag.py."""

from __future__ import annotations

import logging
import time

import pytest

from extproc.app.monitoring.loop_lag import INTERVAL_S, LoopLag
from extproc.app.monitoring.recent import BUCKET_S, RECENT_S
from tests.fakes.log import logged
from tests.fakes.picker import until


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Harness:
    """A measurement of which the test fires the timer."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.lag = LoopLag(self.clock, 0.5)
        self.lag.start()

    def fire(self, lag_s: float = 0.0) -> None:
        self.clock.now += INTERVAL_S + lag_s
        self.lag._fire()


async def test_a_blocked_loop_is_a_problem_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not at each lag; and not before it is bad, nor minutes later."""
    harness = Harness()
    harness.fire(0.4)
    assert harness.lag.problems() == () and not harness.lag.is_bad
    with caplog.at_level(logging.WARNING, "coxswain"):
        harness.fire(2.0)
        harness.fire(1.0)
    (record,) = logged(caplog)
    assert "blocked for up to 2.0 s" in record.getMessage()
    (problem,) = harness.lag.problems()
    assert "give it a CPU core" in problem
    harness.clock.now += RECENT_S + BUCKET_S
    assert harness.lag.problems() == ()
    harness.lag.stop()


async def test_the_time_lost_since_a_moment_is_known_before_the_timer_fires() -> None:
    """Of two timers that are due after a block, either may be the first."""
    harness = Harness()
    began_at = harness.clock.now
    harness.fire(0.7)
    assert harness.lag.lost_s(began_at) == pytest.approx(0.7)
    harness.clock.now += INTERVAL_S + 1.5
    assert harness.lag.lost_s(began_at) == pytest.approx(2.2)
    assert harness.lag.lost_s(harness.clock.now - 2.0) == pytest.approx(1.5 + 0.4, abs=0.21)
    harness.lag._fire()
    harness.fire()
    assert harness.lag.lost_s(harness.clock.now - INTERVAL_S) == 0
    harness.lag.stop()
    harness.clock.now += 60
    assert harness.lag.lost_s(harness.clock.now - 60) == 0


async def test_each_lag_is_in_the_histogram() -> None:
    harness = Harness()
    for lag_s in (0.0, 0.0, 0.3):
        harness.fire(lag_s)
    read = harness.lag.read()
    assert read.count == 3 and read.total == pytest.approx(0.3)
    harness.lag.stop()


async def test_it_measures_a_real_loop_until_it_is_stopped() -> None:
    lag = LoopLag(time.monotonic, 3600)
    lag.start()
    began_at = time.monotonic()
    time.sleep(3 * INTERVAL_S)  # noqa: ASYNC251 - it blocks the loop
    await until(lambda: lag.read().count > 0)
    assert lag.lost_s(began_at) > 0
    lag.stop()
    lag.stop()
