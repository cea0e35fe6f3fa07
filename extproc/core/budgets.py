"""What clients have spent of their budgets in this day and this month.

The sums come from the counts of usage, which outlive a process and may have more than one writer;
`known` brings them. Until it does so again, what is counted here is added to them.

Pure: time is an argument, in monotonic seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf, isinf
from typing import Final, NamedTuple

UNKNOWN_END_S: Final = 60.0
"""When a client may try again, while the end of its period is not known."""


class Period(Enum):
    """How long a budget lasts. Days and months are those of UTC."""

    DAY = "day"
    MONTH = "month"


LONGEST_FIRST: Final = (Period.MONTH, Period.DAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a client may spend in a period: tokens of prompts and responses, and what they cost by
    the prices of endpoints. None sets no bound."""

    tokens: int | None = None
    cost: float | None = None


class Spent(NamedTuple):
    """Tokens and cost of one client in one period."""

    tokens: int = 0
    cost: float = 0.0

    def has_reached(self, budget: Budget, reserved_tokens: int = 0) -> bool:
        """Whether nothing is left, with the tokens that are reserved."""
        is_over = budget.cost is not None and self.cost >= budget.cost
        return is_over or (
            budget.tokens is not None and self.tokens + reserved_tokens >= budget.tokens
        )


NOTHING: Final = Spent()


class Spending:
    """Every call is O(1). There are at most as many clients as names in the keys file."""

    def __init__(self) -> None:
        self._spent: dict[Period, dict[str, Spent]] = {period: {} for period in Period}
        self._ends: dict[Period, float] = dict.fromkeys(Period, inf)

    def known(
        self, spent: Mapping[Period, Mapping[str, Spent]], ends: Mapping[Period, float]
    ) -> None:
        """Take what each client has spent, of all that was counted until now, and when each period
        ends."""
        self._spent = {period: dict(spent[period]) for period in Period}
        self._ends = dict(ends)

    def add(self, name: str, tokens: int, cost: float, now: float) -> None:
        """What a request used is known."""
        for period in Period:
            before = self.of(name, period, now)
            self._spent[period][name] = Spent(before.tokens + tokens, before.cost + cost)

    def of(self, name: str, period: Period, now: float) -> Spent:
        """What the client has spent in this period."""
        if now >= self._ends[period]:  # the counts will say when the next one ends
            self._spent[period], self._ends[period] = {}, inf
        return self._spent[period].get(name, NOTHING)

    def ends_in_s(self, period: Period, now: float) -> float:
        """When this period ends."""
        end = self._ends[period]
        return UNKNOWN_END_S if isinf(end) else max(0.0, end - now)
