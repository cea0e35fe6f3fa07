"""Claims about extproc/usage/reconciliation.py."""

from __future__ import annotations

from random import Random

import pytest

from extproc.usage.ended_tasks import Work
from extproc.usage.reconciliation import (
    BASE_S,
    HOLD_S,
    LATE_S,
    MAX_HELD,
    PRESSING_S,
    UNREAD,
    UNREAD_S,
    Held,
    Reconciliation,
    Tokens,
)

NONE = Tokens()


def estimate(
    generated: int, prompt: int = 30, *, least: int = 0, is_prompt_certain: bool = True
) -> Work:
    return Work(
        prompt_tokens=prompt,
        cached_tokens=0,
        generated_tokens=generated,
        is_prompt_certain=is_prompt_certain,
        least_generated_tokens=least,
    )


class Server:
    """What it counts, and the books on it."""

    def __init__(self) -> None:
        self.reconciliation = Reconciliation()
        self.reconciliation.was_read(is_shown=True)
        self.counted = Tokens(1000, 100, 500)
        self.read()

    def work(self, *tokens: int) -> Tokens:
        done = Tokens(*tokens)
        self.counted = self.counted.plus(done)
        return done

    def serve(self, *tokens: int, id_: str = "whole") -> None:
        self.reconciliation.book(id_, self.work(*tokens))

    def read(self, *pending: str, now: float = 1.0, rounding: int = 0) -> None:
        self.reconciliation.read(self.counted, Tokens(*3 * (rounding,)), pending, now)

    def hold(self, work: Work | None, id_: str = "left", since: float = 0.0) -> Held:
        held = Held(id_, work, since)
        self.reconciliation.hold(held)
        return held


@pytest.fixture
def server() -> Server:
    return Server()


def test_the_difference_is_the_request_that_was_left(server: Server) -> None:
    server.serve(50, 0, 20)
    server.work(30, 0, 47)
    held = server.hold(estimate(40))
    assert server.reconciliation.settle(1.0) == []
    server.serve(7, 8, 9)
    server.read()
    assert server.reconciliation.settle(1.0) == [held]
    assert held.tokens == Tokens(30, 0, 47)
    assert held.is_compared
    assert server.reconciliation.is_idle


def test_several_share_it_in_proportion(server: Server) -> None:
    """To the token, and those whose counts are certain have none of it."""
    server.work(60, 0, 110)
    certain = server.hold(
        Work(
            prompt_tokens=0,
            cached_tokens=0,
            generated_tokens=5,
            is_prompt_certain=True,
            is_generated_certain=True,
        )
    )
    few, many = server.hold(estimate(9)), server.hold(estimate(89))
    server.read()
    assert server.reconciliation.settle(1.0) == [certain, few, many]
    assert [one.tokens.generated for one in (certain, few, many)] == [5, 10, 95]


def test_none_has_less_than_what_was_seen_of_it(server: Server) -> None:
    server.work(60, 0, 70)
    one, other = server.hold(estimate(50, least=45)), server.hold(estimate(50))
    server.read()
    assert (one.tokens.generated, other.tokens.generated) == (45, 25)


def test_a_request_of_which_nothing_was_seen_is_found(server: Server) -> None:
    server.work(200, 30, 1)
    held = server.hold(None)
    server.read()
    assert (held.tokens, held.is_compared) == (Tokens(200, 30, 1), True)


def test_an_estimated_prompt_becomes_what_the_server_read_of_it(server: Server) -> None:
    server.work(512, 0, 0)
    held = server.hold(estimate(0, prompt=600, is_prompt_certain=False))
    server.read()
    assert held.tokens == Tokens(512, 0, 0)


@pytest.mark.parametrize("is_early", [True, False])
def test_a_reading_waits_for_requests_that_ended_before_it(server: Server, is_early: bool) -> None:
    """Whichever is known first, and those that end after it are not in it."""
    whole, late = server.work(50, 0, 20), server.work(30, 0, 44)
    assert late == Tokens(30, 0, 44)
    held = Held("left", estimate(40), 0.0)
    if is_early:
        server.reconciliation.hold(held)
        server.read("whole")
    else:
        server.read("whole", "left")
        server.reconciliation.book("after", server.work(5, 5, 5))
    assert not server.reconciliation.wants_reading(100.0, is_pressing=True)
    assert server.reconciliation.settle(1.0) == []
    if not is_early:
        server.reconciliation.hold(held)
    server.reconciliation.book("whole", whole)
    assert server.reconciliation.settle(1.0) == [held]
    assert held.tokens == Tokens(30, 0, 44)
    server.work(30, 0, 41)  # and the next one is right as well
    held = server.hold(estimate(40))
    server.read()
    assert held.tokens == Tokens(30, 0, 41)


def test_a_task_that_was_taken_for_anothers_is_corrected(server: Server) -> None:
    """Its counts are some request's own, and only the sum shows that they are not this one's."""
    server.work(2, 120, 5)
    held = server.hold(
        Work(
            prompt_tokens=106,
            cached_tokens=95,
            generated_tokens=22,
            is_prompt_certain=True,
            is_generated_certain=True,
            least_generated_tokens=20,
        )
    )
    server.read()
    assert (held.tokens, held.is_compared) == (Tokens(2, 120, 5), True)


def test_what_no_held_request_can_have_is_somebody_elses(server: Server) -> None:
    """Nobody is charged for it, now or later."""
    server.work(999, 0, 999)
    held = server.hold(estimate(40))
    server.read()
    assert (held.tokens, held.is_compared) == (Tokens(30, 0, 40), False)
    server.work(77, 0, 77)
    server.read()
    server.work(30, 0, 42)
    held = server.hold(estimate(40))
    server.read()
    assert (held.tokens, held.is_compared) == (Tokens(30, 0, 42), True)


def test_a_new_beginning_compares_with_what_comes_after(server: Server) -> None:
    server.work(30, 0, 41)
    before = server.hold(estimate(40))
    server.read("nobody")
    server.reconciliation.start_over()
    server.counted = Tokens(3, 0, 5)
    server.read()
    assert server.reconciliation.settle(1.0) == [before]
    assert (before.tokens.generated, before.is_compared) == (40, False)
    server.work(30, 0, 41)
    held = server.hold(estimate(40))
    server.read()
    assert held.tokens.generated == 41


def test_without_a_reading_requests_count_as_estimated(server: Server) -> None:
    server.work(30, 0, 41)
    held = server.hold(estimate(40), since=5.0)
    assert server.reconciliation.settle(5.0 + HOLD_S) == []
    assert server.reconciliation.settle(5.1 + HOLD_S) == [held]
    assert held.tokens.generated == 40
    server.read()
    server.work(30, 0, 41)
    held = server.hold(estimate(40))
    server.read()
    assert held.tokens.generated == 41


def test_a_reading_that_waits_for_too_long_is_given_up(server: Server) -> None:
    held = server.hold(estimate(40), since=LATE_S)
    server.read("never")
    server.reconciliation.settle(1.0 + LATE_S)
    assert not server.reconciliation.wants_reading(1.0 + LATE_S, is_pressing=True)
    server.reconciliation.settle(1.1 + LATE_S)
    assert server.reconciliation.wants_reading(1.1 + LATE_S, is_pressing=True)
    server.read()
    assert server.reconciliation.settle(1.1 + LATE_S) == [held]


def test_at_the_end_all_are_counted(server: Server) -> None:
    one = server.hold(estimate(40))
    server.read("never")
    other = server.hold(None)
    assert server.reconciliation.settle(1.0, is_last=True) == [one, other]
    assert server.reconciliation.is_idle


def test_held_requests_are_bounded(server: Server) -> None:
    for _ in range(MAX_HELD + 3):
        server.hold(estimate(40))
    assert len(server.reconciliation.settle(0.0)) == 3


def test_the_sums_stay_within_the_rounding_of_the_counters(server: Server) -> None:
    """Over many readings: what one rounds away, a later one shows."""
    random = Random(3)
    start, booked = server.counted, NONE
    for number in range(500):
        server.serve(*(random.randrange(50) for _ in range(3)))
        server.work(30, 0, 40 + random.randrange(9))
        server.hold(estimate(40), id_=str(number))
        shown = Tokens(*(round(count, -2) for count in server.counted))
        server.reconciliation.read(shown, Tokens(50, 50, 50), (), 1.0)
        booked = server.reconciliation._booked
        off = server.counted.plus(start, -1).plus(booked, -1)
        assert all(abs(each) <= 101 for each in off)
    assert sum(booked) > 500 * 100


def test_random_runs_are_exact() -> None:
    """Any request that was left, once the counters were read after it."""
    random = Random(5)
    for _ in range(50):
        server = Server()
        start, open_ = server.counted, dict[str, Tokens]()
        for number in range(200):
            match random.randrange(4):
                case 0:
                    tokens = Tokens(*(random.randrange(90) for _ in range(3)))
                    server.counted = server.counted.plus(tokens)
                    open_[f"w{number}"] = tokens
                case 1:
                    seen = random.randrange(90)
                    server.work(random.randrange(90), 0, seen + random.randrange(30))
                    work = estimate(seen, 0, least=seen, is_prompt_certain=False)
                    server.hold(work, id_=f"l{number}")
                case 2 if open_:
                    id_, tokens = open_.popitem()
                    server.reconciliation.book(id_, tokens)
                case _:
                    server.read(*open_)
        for id_, tokens in open_.items():
            server.reconciliation.book(id_, tokens)
        server.read()  # perhaps the one that had waited was compared only now
        assert all(one.is_compared for one in server.reconciliation.settle(1.0))
        assert server.counted == start.plus(server.reconciliation._booked)


def test_counters_are_read_as_often_as_it_helps(server: Server) -> None:
    reconciliation = server.reconciliation
    assert not reconciliation.wants_reading(100.0, is_pressing=False)  # nothing has changed
    server.serve(1, 1, 1)
    assert reconciliation.wants_reading(100.0, is_pressing=False)
    assert not reconciliation.wants_reading(99.9 + BASE_S, is_pressing=False)
    assert reconciliation.wants_reading(100.0 + BASE_S, is_pressing=False)
    now = 200.0
    server.hold(estimate(40))
    assert reconciliation.wants_reading(now, is_pressing=False)
    assert not reconciliation.wants_reading(now + PRESSING_S / 2, is_pressing=False)
    assert reconciliation.wants_reading(now + 2 * PRESSING_S, is_pressing=False)


def test_a_server_without_counters_is_rarely_asked() -> None:
    reconciliation = Reconciliation()
    assert not reconciliation.is_active
    assert reconciliation.wants_reading(0.0, is_pressing=True)
    assert not reconciliation.wants_reading(UNREAD_S - 1, is_pressing=True)
    assert reconciliation.wants_reading(UNREAD_S, is_pressing=True)
    reconciliation.was_read(is_shown=True)
    found = []
    for _ in range(UNREAD + 1):
        found.append(reconciliation.is_active)
        reconciliation.was_read(is_shown=False)
    assert found == [True] * UNREAD + [False]
