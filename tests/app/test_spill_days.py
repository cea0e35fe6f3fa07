"""Claims about extproc/app/spill_days.py, with a clock of its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from extproc.app.spill_days import DAY_S, SpillDays
from extproc.settings.spill_section import SpillSettings
from extproc.usage.counts import UsageCounts, UsageKey
from extproc.usage.store import UsageError, UsageRow
from tests.fakes.small_fleet import SmallFleet

NOON = 1000 * DAY_S + DAY_S // 2


class Day:
    """A day's usage as it would be read, and the time."""

    def __init__(self, **settings: Any) -> None:
        self.settings = SpillSettings(**settings)
        self.now = float(NOON)
        self.requests, self.cost = 0, 0.0
        self.error: UsageError | None = None
        self.since: list[float] = []
        self.dispatcher = SmallFleet(1).dispatcher
        self.days = SpillDays(
            self,  # type: ignore[arg-type]  # all that it asks of usage is `read`
            self.dispatcher,
            lambda: self.settings,
            lambda: self.now,
        )

    async def read(self, since: float, by: Collection[str], limit: int) -> list[UsageRow]:
        assert list(by) == ["tier"] and limit
        self.since.append(since)
        if self.error is not None:
            raise self.error
        home = UsageCounts(requests=1000, cost=1000.0)
        far = UsageCounts(requests=self.requests, cost=self.cost)
        return [
            UsageRow(UsageKey("", "", "", "1"), home),
            UsageRow(UsageKey("", "", "", "2"), far),
        ]

    def spill(self, count: int) -> None:
        self.dispatcher.state.spilled += count

    async def left(self) -> int | None:
        await self.days.check()
        return self.dispatcher.state.spill_left


async def test_without_a_bound_nothing_is_read() -> None:
    day = Day()
    assert await day.left() is None
    assert day.since == [] and day.days.problems() == ()


async def test_requests_are_counted_when_they_begin() -> None:
    """What the file had at the start, and what was sent since, whether it was counted or not."""
    day = Day(max_requests_per_day=10)
    day.requests = 4
    assert await day.left() == 6
    assert day.since == [1000 * DAY_S]
    day.spill(5)
    assert await day.left() == 1
    day.requests = 9  # they ended
    assert await day.left() == 1
    day.spill(1)
    assert await day.left() == 0
    assert "its requests of today" in day.days.problems()[0]


async def test_a_new_day_opens_it() -> None:
    """Also for what runs over midnight: it is of the day in which it began."""
    day = Day(max_requests_per_day=3)
    assert await day.left() == 3
    day.spill(3)
    assert await day.left() == 0
    day.now += DAY_S
    day.requests = 2  # which ended today
    assert await day.left() == 3
    assert day.since[-1] == 1001 * DAY_S
    assert day.days.problems() == ()


async def test_cost_closes_it_and_a_higher_bound_opens_it() -> None:
    day = Day(max_cost_per_day=2.5)
    day.cost = 2.4
    assert await day.left() is None
    day.cost = 2.5
    assert await day.left() == 0
    assert "it has cost 2.50 today" in day.dispatcher.view.spill_closed
    day.settings = SpillSettings(max_cost_per_day=5.0)
    assert await day.left() is None


async def test_what_cannot_be_read_closes_it() -> None:
    day = Day(max_cost_per_day=2.5)
    day.error = UsageError("disk is on fire")
    assert await day.left() == 0
    assert "disk is on fire" in day.days.problems()[0]
    day.error = None
    assert await day.left() is None
