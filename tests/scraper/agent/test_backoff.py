"""How soon the picker is tried again."""

from __future__ import annotations

from scraper.agent.backoff import FIRST_S, LONGEST_S, REJECTED_S, Backoff


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
