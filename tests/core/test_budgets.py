"""Claims about extproc/core/budgets.py."""

from __future__ import annotations

import pytest

from extproc.core.budgets import NOTHING, UNKNOWN_END_S, Budget, Period, Spending, Spent


@pytest.mark.parametrize(
    ("budget", "reserved", "is_reached"),
    [
        (Budget(), 0, False),
        (Budget(tokens=101), 0, False),
        (Budget(tokens=100), 0, True),
        (Budget(tokens=110), 10, True),
        (Budget(cost=2.5), 0, True),
        (Budget(cost=2.6), 1000, False),
        (Budget(tokens=1000, cost=2.0), 0, True),
    ],
)
def test_when_a_budget_is_reached(budget: Budget, reserved: int, is_reached: bool) -> None:
    """Either bound is enough; only tokens are reserved."""
    assert Spent(100, 2.5).has_reached(budget, reserved) is is_reached


def test_the_books_say_what_was_spent_and_later_requests_add_to_it() -> None:
    spending = Spending()
    spending.add("web", 5, 0.5, 0.0)
    assert spending.of("web", Period.DAY, 0.0) == Spent(5, 0.5)
    assert spending.ends_in_s(Period.DAY, 0.0) == UNKNOWN_END_S
    spending.known(
        {Period.DAY: {"web": Spent(10, 1.0)}, Period.MONTH: {"web": Spent(70, 7.0)}},
        {Period.DAY: 100.0, Period.MONTH: 1000.0},
    )
    spending.add("web", 1, 0.25, 1.0)
    assert spending.of("web", Period.DAY, 1.0) == Spent(11, 1.25)
    assert spending.of("web", Period.MONTH, 1.0) == Spent(71, 7.25)
    assert spending.of("batch", Period.DAY, 1.0) == NOTHING
    assert spending.ends_in_s(Period.DAY, 1.0) == 99.0


def test_a_period_that_has_ended_begins_anew() -> None:
    """Until the books say more; the month goes on."""
    spending = Spending()
    spent = {period: {"web": Spent(10, 1.0)} for period in Period}
    spending.known(spent, {Period.DAY: 100.0, Period.MONTH: 1000.0})
    spending.add("web", 1, 0.0, 100.0)
    assert spending.of("web", Period.DAY, 100.0) == Spent(1, 0.0)
    assert spending.of("web", Period.MONTH, 100.0) == Spent(11, 1.0)
    assert spending.ends_in_s(Period.DAY, 100.0) == UNKNOWN_END_S
    assert spent[Period.DAY]["web"] == Spent(10, 1.0), "the books are not changed"
