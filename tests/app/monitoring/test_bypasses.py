"""Claims about extproc/app/monitoring/bypasses.py."""

from __future__ import annotations

import logging

import pytest

from extproc.app.monitoring.bypasses import FOUND_AFTER_S, Bypasses
from extproc.app.monitoring.loop_lag import LoopLag
from extproc.app.monitoring.recent import BUCKET_S, RECENT_S
from tests.fakes.log import logged


class Harness:
    def __init__(self) -> None:
        self.now = 1000.0
        self.lag = LoopLag(lambda: self.now, 0.5)
        self.bypasses = Bypasses(lambda: self.now, self.lag)


def test_they_are_counted_and_said_once_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.bypasses.start()
    harness.now += 60
    with caplog.at_level(logging.WARNING, "coxswain"):
        for _ in range(365):
            harness.bypasses.add(2.0)
    (record,) = logged(caplog)
    assert "1 request in the last 5 minutes" in record.getMessage()
    assert "Envoy's log" in record.getMessage()
    assert harness.bypasses.total == harness.bypasses.recent == 365
    (problem,) = harness.bypasses.problems()
    assert "365 requests" in problem


def test_the_problem_ends_and_the_count_stays() -> None:
    harness = Harness()
    harness.bypasses.start()
    harness.now += 60
    harness.bypasses.add(0.0)
    harness.now += RECENT_S + BUCKET_S
    assert harness.bypasses.problems() == ()
    assert harness.bypasses.total == 1


def test_a_blocked_event_loop_is_named_as_the_cause() -> None:
    harness = Harness()
    harness.bypasses.start()
    harness.now += 60
    harness.lag._recent.add(1.5)
    harness.bypasses.add(0.0)
    (problem,) = harness.bypasses.problems()
    assert "blocked for up to 1.5 s" in problem and "ext_proc" not in problem


def test_no_picker_was_there_to_ask() -> None:
    """Before it served, until Envoy found it after a restart, and once it stops: requests that
    began then are none of a living picker, whenever their report comes."""
    harness = Harness()
    bypasses = harness.bypasses
    bypasses.add(0.0)
    bypasses.start()
    bypasses.add(0.0)
    harness.now += FOUND_AFTER_S + 10
    bypasses.add(11.0)  # an answer that began before, and went on for long
    assert bypasses.total == 0
    bypasses.add(9.0)
    assert bypasses.total == 1
    bypasses.stop()
    bypasses.add(0.0)
    assert bypasses.total == 1
