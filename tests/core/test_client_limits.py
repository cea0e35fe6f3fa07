"""Claims about extproc/core/client_limits.py."""

from __future__ import annotations

import pytest

from extproc.core.budgets import Budget, Period, Spent
from extproc.core.client_limits import (
    COUNTED_S,
    EVERYBODY,
    RETRY_S,
    ClientLimit,
    ClientLimits,
    Limited,
)


def test_requests_at_once_are_limited_until_one_ends() -> None:
    limits = ClientLimits({"web": ClientLimit(requests=2)})
    assert limits.begin("web", "a", 0.0) is None
    assert limits.begin("web", "b", 0.0) is None
    exceeded = limits.begin("web", "c", 0.0)
    assert exceeded is not None
    assert (exceeded.what, exceeded.retry_after_s) == (Limited.REQUESTS, RETRY_S)
    assert exceeded.standing.remaining_requests == 0
    limits.end("web", "a")
    standing = limits.standing("web", 0.0)
    assert standing is not None and standing.remaining_requests == 1
    assert limits.begin("web", "c", 0.0) is None


def test_queued_requests_are_limited_apart() -> None:
    """A limit of 0 means that none is queued."""
    limits = ClientLimits({"web": ClientLimit(queued=1), "api": ClientLimit(queued=0)})
    for name in ("a", "b"):
        assert limits.begin("web", name, 0.0) is None
    assert limits.queue_full("web", 0.0) is None
    limits.enqueue("web", "a")
    exceeded = limits.queue_full("web", 0.0)
    assert exceeded is not None and exceeded.what is Limited.QUEUED
    limits.dequeue("web", "a")
    assert limits.queue_full("web", 0.0) is None
    limits.enqueue("web", "b")
    limits.end("web", "b")
    assert limits.queue_full("web", 0.0) is None
    assert limits.queue_full("api", 0.0) is not None
    assert limits.begin("api", "c", 0.0) is None


def test_tokens_count_when_they_are_known_and_drain_in_a_minute() -> None:
    limits = ClientLimits({"web": ClientLimit(tokens_per_minute=600)})
    assert limits.begin("web", "r0", 0.0) is None
    limits.spent("web", 1200, 0.0)
    exceeded = limits.begin("web", "r1", 0.0)
    assert exceeded is not None and exceeded.what is Limited.TOKENS
    assert exceeded.retry_after_s == pytest.approx(60.0 + RETRY_S)
    assert exceeded.standing.remaining_tokens == 0
    assert exceeded.standing.reset_tokens_s == pytest.approx(120.0)
    assert limits.begin("web", "r2", 59.9) is not None
    assert limits.begin("web", "r3", 60.2) is None
    standing = limits.standing("web", 90.0)
    assert standing is not None and standing.remaining_tokens == 300
    assert limits.begin("web", "r4", 1000.0) is None


def test_a_client_that_waits_as_long_as_it_is_told_may_begin() -> None:
    limits = ClientLimits({"web": ClientLimit(tokens_per_minute=7)})
    limits.spent("web", 100, 5.0)
    exceeded = limits.begin("web", "r5", 5.0)
    assert exceeded is not None
    assert limits.begin("web", "r6", 5.0 + exceeded.retry_after_s) is None


def test_whose_limit_it_is() -> None:
    """A client's own one, else that of everybody; requests without a client have none."""
    limits = ClientLimits({"web": ClientLimit(requests=9), EVERYBODY: ClientLimit(requests=1)})
    assert limits.limit_of("web") == ClientLimit(requests=9)
    assert limits.limit_of("api") == ClientLimit(requests=1)
    assert limits.limit_of("") is None
    assert limits.begin("api", "r7", 0.0) is None
    assert limits.begin("other", "r8", 0.0) is None, "each has it for itself"
    assert limits.begin("api", "r9", 0.0) is not None
    assert ClientLimits({}).standing("web", 0.0) is None


def test_to_end_twice_or_without_a_beginning_changes_nothing() -> None:
    limits = ClientLimits({"web": ClientLimit(requests=1, queued=1)})
    limits.end("nobody", "a")
    limits.dequeue("nobody", "a")
    assert limits.begin("web", "a", 0.0) is None
    limits.enqueue("web", "a")
    assert list(limits.held()) == [("web", "a")]
    for _ in range(2):
        limits.end("web", "a")
    limits.end("web", "b")
    assert list(limits.held()) == []
    assert limits.begin("web", "b", 0.0) is None
    assert limits.begin("web", "c", 0.0) is not None


def test_what_has_no_limit_is_not_kept() -> None:
    limits = ClientLimits({"web": ClientLimit(requests=1)})
    assert limits.begin("api", "a", 0.0) is None
    assert list(limits.held()) == []


def test_other_limits_count_what_clients_have() -> None:
    """Requests that run keep counting, and tokens that were used drain at the new rate from then
    on. A request that began without a limit does not count, and ends without harm."""
    limits = ClientLimits({"web": ClientLimit(requests=2, tokens_per_minute=600)})
    assert limits.begin("web", "a", 0.0) is None
    assert limits.begin("free", "b", 0.0) is None
    limits.spent("web", 900, 0.0)
    limits.renew({"web": ClientLimit(requests=1, tokens_per_minute=60), "free": ONE}, 30.0)
    exceeded = limits.begin("web", "c", 30.0)
    assert exceeded is not None and exceeded.what is Limited.REQUESTS
    assert exceeded.standing.remaining_requests == 0
    assert exceeded.standing.reset_tokens_s == pytest.approx(600.0)
    limits.end("web", "a")
    exceeded = limits.begin("web", "c", 30.0)
    assert exceeded is not None and exceeded.what is Limited.TOKENS
    limits.enqueue("free", "b")
    assert limits.begin("free", "d", 30.0) is None
    assert limits.begin("free", "e", 30.0) is not None
    limits.end("free", "b")
    limits.end("free", "d")
    limits.renew({}, 31.0)
    assert limits.begin("web", "f", 31.0) is None
    assert list(limits.held()) == []


def test_what_a_request_without_a_limit_does_counts_nowhere() -> None:
    """Not in the queue, nor by its tokens, nor if it began in another process."""
    limits = ClientLimits({"web": ClientLimit(requests=1), "batch": ClientLimit(queued=1)})
    for name in ("", "api"):
        limits.adopt(name, "a", 0.0)
        limits.spent(name, 1000, 0.0)
        assert limits.queue_full(name, 0.0) is None
        assert limits.standing(name, 0.0) is None
    assert limits.queue_full("web", 0.0) is None
    limits.spent("web", 1000, 0.0)
    standing = limits.standing("web", 0.0)
    assert standing is not None and standing.remaining_tokens is None
    assert list(limits.held()) == []


def test_a_request_that_began_in_another_process_counts_until_it_ends() -> None:
    limits = ClientLimits({"web": ClientLimit(requests=1)})
    limits.adopt("web", "a", 0.0)
    assert list(limits.held()) == [("web", "a")]
    assert limits.begin("web", "b", 0.0) is not None
    limits.end("web", "a")
    assert limits.begin("web", "b", 0.0) is None


def test_tokens_used_before_a_client_lost_its_limit_stop_draining() -> None:
    """Without a limit there is no rate; they drain again from when there is one."""
    limits = ClientLimits({"web": ClientLimit(tokens_per_minute=60)})
    assert limits.begin("web", "a", 0.0) is None
    limits.spent("web", 120, 0.0)
    limits.renew({}, 30.0)
    limits.renew({"web": ClientLimit(tokens_per_minute=60)}, 600.0)
    exceeded = limits.begin("web", "b", 610.0)
    assert exceeded is not None and exceeded.what is Limited.TOKENS
    assert exceeded.standing.reset_tokens_s == pytest.approx(80.0)


ONE = ClientLimit(requests=1)


# Budgets


def with_budget(now: float = 0.0, day: int = 0, month: int = 0) -> ClientLimits:
    limits = ClientLimits(
        {
            "web": ClientLimit(daily=Budget(tokens=1000), monthly=Budget(tokens=5000, cost=9.0)),
            "free": ClientLimit(requests=5),
        }
    )
    assert limits.has_budgets and not ClientLimits({"free": ClientLimit(requests=5)}).has_budgets
    limits.spending.known(
        {Period.DAY: {"web": Spent(day)}, Period.MONTH: {"web": Spent(month)}},
        {Period.DAY: now + 60.0, Period.MONTH: now + 600.0},
    )
    return limits


def test_a_client_without_a_budget_left_waits_for_the_next_day() -> None:
    limits = with_budget(day=999)
    assert limits.begin("web", "a", 0.0) is None
    limits.spent("web", 1, 1.0, 0.0, "a")
    exceeded = limits.begin("web", "b", 1.0)
    assert exceeded is not None
    assert (exceeded.what, exceeded.period) == (Limited.BUDGET, Period.DAY)
    assert exceeded.retry_after_s == pytest.approx(59.0 + RETRY_S)
    assert limits.begin("web", "b", 60.0) is None, "the next day"
    assert limits.spent_of("web", Period.MONTH, 60.0) == Spent(1)


def test_the_longest_period_is_the_one_that_is_said() -> None:
    limits = with_budget(day=1000, month=5000)
    exceeded = limits.begin("web", "a", 0.0)
    assert exceeded is not None and exceeded.period is Period.MONTH
    limits = with_budget()
    limits.spent("web", 1, 0.0, 9.0)
    exceeded = limits.begin("web", "a", 0.0)
    assert exceeded is not None and exceeded.period is Period.MONTH, "by its cost"


def test_running_requests_reserve_tokens_until_they_are_counted() -> None:
    """A further one waits for one to end, which is no end of the budget."""
    limits = with_budget(day=500)
    assert limits.begin("web", "a", 0.0, 300) is None
    assert limits.begin("web", "b", 0.0, 200) is None
    exceeded = limits.begin("web", "c", 0.0)
    assert exceeded is not None
    assert (exceeded.what, exceeded.retry_after_s) == (Limited.RESERVED, RETRY_S)
    limits.end("web", "a")
    assert limits.begin("web", "c", 0.0) is None, "it never had a slot"
    limits.end("web", "c")
    limits.adopt("web", "d", 0.0, 300)
    limits.end("web", "b", uncounted_at=1.0)
    assert limits.begin("web", "c", 1.0) is not None, "its tokens are not known yet"
    limits.spent("web", 10, 1.0, 0.0, "b")
    assert limits.begin("web", "c", 1.0) is None
    assert limits.running("web") == (2, 0) and limits.running("nobody") == (0, 0)


def test_what_is_never_counted_is_not_reserved_for_ever() -> None:
    limits = with_budget(now=COUNTED_S, day=500)
    assert limits.begin("web", "a", 0.0, 500) is None
    limits.end("web", "a", uncounted_at=0.0)
    assert limits.begin("web", "b", COUNTED_S - 1.0) is not None
    assert limits.begin("web", "b", COUNTED_S) is None


def test_without_a_budget_nothing_is_kept_of_ended_requests() -> None:
    """Nobody may ever count them."""
    limits = with_budget()
    for name in ("free", "web"):
        assert limits.begin(name, "a", 0.0, 300) is None
        limits.end(name, "a", uncounted_at=1.0)
    limits.renew({name: ClientLimit(daily=Budget(tokens=300)) for name in ("free", "web")}, 1.0)
    assert limits.begin("free", "b", 1.0) is None
    assert limits.begin("web", "b", 1.0) is not None
    limits.begin("free", "c", 1.0)
    limits.renew({}, 1.0)
    limits.end("free", "c", uncounted_at=1.0)


def test_budgets_that_are_set_later_count_from_the_books() -> None:
    """What clients without any spend is not kept here."""
    limits = ClientLimits({"web": ClientLimit(requests=1)})
    limits.spent("web", 10, 0.0)
    assert limits.spent_of("web", Period.DAY, 0.0) == Spent()
    limits.renew({"web": ClientLimit(daily=Budget(tokens=5))}, 0.0)
    limits.spent("web", 5, 0.0)
    exceeded = limits.begin("web", "a", 0.0)
    assert exceeded is not None and exceeded.what is Limited.BUDGET
