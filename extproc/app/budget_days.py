"""Brings what clients have spent from the counts of usage to their limits. Days and months are
those of UTC."""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from extproc.app.day_checks import DayChecks
from extproc.app.usage import Usage
from extproc.core.budgets import Period, Spent
from extproc.core.client_limits import ClientLimits
from extproc.usage.counts import UsageCounts
from extproc.usage.store import UsageError

MONTH_S: Final = 60.0
"""How often the days before it are read."""

log = logging.getLogger("coxswain.usage")


class Days(NamedTuple):
    """The Unix times at which this day and this month began, and at which they end."""

    day: float
    month: float
    day_ends: float
    month_ends: float


def days_at(unix_s: float) -> Days:
    """The day and the month of this time, by UTC."""
    day = datetime.fromtimestamp(unix_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    ends = day + timedelta(days=1), (month + timedelta(days=32)).replace(day=1)
    return Days(*(each.timestamp() for each in (day, month, *ends)))


class BudgetDays(DayChecks):
    """Other pickers may write the same file: what they count is known after a check. While it
    cannot be read, what this process counts is added to what was known before."""

    def __init__(
        self,
        usage: Usage,
        limits: ClientLimits,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__("counting the budgets of clients")
        self._usage = usage
        self._limits = limits
        self._unix_clock = unix_clock
        self._earlier: dict[str, Spent] = {}
        """What clients have spent in this month before today."""
        self._day = -1.0
        self._read_at = float("-inf")
        self._problem = ""

    def problems(self) -> tuple[str, ...]:
        """Why budgets are not counted in full, as text for operators."""
        return (self._problem,) if self._problem else ()

    async def check(self) -> None:
        """Read what was spent until now, if a client has a budget. Never raises `UsageError`."""
        if not self._limits.has_budgets:
            self._set_problem("")
            self._read_at = float("-inf")
            return
        now = time.monotonic()
        days = days_at(self._unix_clock())
        try:
            if days.day != self._day or now >= self._read_at + MONTH_S:
                today, month = await self._usage.by_client(days.day, days.month)
                self._earlier = _difference(month, today)
                self._day, self._read_at = days.day, now
            else:
                (today,) = await self._usage.by_client(days.day)
        except UsageError as error:
            self._set_problem(f"budgets of clients count only what this process sees: {error}")
            return
        self._set_problem("")
        spent = {name: _spent(counts) for name, counts in today.items()}
        until_now = self._unix_clock()
        mono = time.monotonic()
        self._limits.spending.known(
            {Period.DAY: spent, Period.MONTH: _sum(self._earlier, spent)},
            {
                Period.DAY: mono + days.day_ends - until_now,
                Period.MONTH: mono + days.month_ends - until_now,
            },
        )

    def _set_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("%s", problem)
        self._problem = problem


def _spent(counts: UsageCounts) -> Spent:
    return Spent(counts.prompt_tokens + counts.generated_tokens, counts.cost)


def _difference(
    month: Mapping[str, UsageCounts], today: Mapping[str, UsageCounts]
) -> dict[str, Spent]:
    """What was spent before today."""
    found = {}
    for name, counts in month.items():
        whole, part = _spent(counts), _spent(today.get(name, UsageCounts()))
        found[name] = Spent(max(0, whole.tokens - part.tokens), max(0.0, whole.cost - part.cost))
    return found


def _sum(one: Mapping[str, Spent], other: Mapping[str, Spent]) -> dict[str, Spent]:
    nothing = Spent()
    return {
        name: Spent(
            one.get(name, nothing).tokens + other.get(name, nothing).tokens,
            one.get(name, nothing).cost + other.get(name, nothing).cost,
        )
        for name in one.keys() | other.keys()
    }
