"""Claims about scraper/agent/picker_stream.py; test_link.py and tests/keeper/test_link.py play it
over real gRPC."""

from __future__ import annotations

import logging

import pytest

from scraper.agent.picker_stream import FIRST_S, LONGEST_S, REJECTED_S, Attempts, Backoff

LOG = logging.getLogger("coxswain.test")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_problem_and_each_connection_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOG.name)
    attempts = Attempts(LOG, Clock(), lambda: 0.0)
    for _ in range(2):
        attempts.failed("p:1", "it is gone")
    for _ in range(2):
        attempts.connected("p:1")
    attempts.failed("p:1", "it is gone")
    assert [record.getMessage() for record in caplog.records] == [
        "picker p:1: it is gone; retrying",
        "connected to the picker at p:1 again",
        "picker p:1: it is gone; retrying",
    ]


def test_the_first_connection_is_not_one_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOG.name)
    Attempts(LOG, Clock(), lambda: 0.0).connected("p:1")
    assert [record.getMessage() for record in caplog.records] == ["connected to the picker at p:1"]


def test_pauses_grow_until_a_stream_has_lasted() -> None:
    """And are long after a rejection, which an operator has to end."""
    clock = Clock()
    attempts = Attempts(LOG, clock, lambda: 1.0)
    attempts.begin()
    assert [attempts.pause_s(is_rejected=False) for _ in range(3)] == [
        FIRST_S,
        2 * FIRST_S,
        4 * FIRST_S,
    ]
    assert attempts.pause_s(is_rejected=True) == REJECTED_S
    clock.now += LONGEST_S + 0.1
    assert attempts.pause_s(is_rejected=False) == FIRST_S


def test_it_doubles_up_to_a_bound_and_begins_again() -> None:
    backoff = Backoff(lambda: 1.0)
    assert [backoff.next_s(is_rejected=False) for _ in range(3)] == [
        FIRST_S,
        2 * FIRST_S,
        4 * FIRST_S,
    ]
    for _ in range(10_000):
        assert backoff.next_s(is_rejected=False) <= LONGEST_S
    backoff.reset()
    assert backoff.next_s(is_rejected=False) == FIRST_S


def test_many_agents_do_not_come_back_in_step() -> None:
    assert Backoff(lambda: 0.0).next_s(is_rejected=False) == FIRST_S / 2
    assert Backoff(lambda: 0.5).next_s(is_rejected=False) == FIRST_S * 0.75


def test_what_is_rejected_is_not_asked_often() -> None:
    assert Backoff(lambda: 1.0).next_s(is_rejected=True) == REJECTED_S
