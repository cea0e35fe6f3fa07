"""Claims about extproc/app/budget_days.py, with real books and a clock of its own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from extproc.app.budget_days import BudgetDays, days_at
from extproc.app.usage import Usage
from extproc.core.budgets import Budget, Period, Spent
from extproc.core.client_limits import ClientLimit, ClientLimits, Limited
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.usage.counts import UsageCounts, UsageKey
from extproc.usage.store import UsageError, UsageStore
from tests.fakes.small_fleet import SmallFleet
from tests.telemetry.records import record

HOUR_S = 3600


def unix_time(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("now", "began", "month", "ends", "month_ends"),
    [
        ("2026-02-28 23:59:59", "2026-02-28", "2026-02-01", "2026-03-01", "2026-03-01"),
        ("2026-12-31 12:00:00", "2026-12-31", "2026-12-01", "2027-01-01", "2027-01-01"),
        ("2026-05-01 00:00:00", "2026-05-01", "2026-05-01", "2026-05-02", "2026-06-01"),
    ],
)
def test_days_and_months(now: str, began: str, month: str, ends: str, month_ends: str) -> None:
    """Of UTC."""
    assert days_at(unix_time(now)) == tuple(map(unix_time, (began, month, ends, month_ends)))


class Books:
    """The usage of one picker, and what its clients may spend."""

    def __init__(self, path: Path, unix_now: float) -> None:
        self.now = unix_now
        self.limits = ClientLimits({"*": ClientLimit(daily=Budget(tokens=1000))})
        self.usage = Usage(path, 30, SmallFleet(1).dispatcher, ExchangeRegistry(), self.limits)
        self.days = BudgetDays(self.usage, self.limits, lambda: self.now)

    def spent(self, period: Period) -> Spent:
        return self.limits.spent_of("web", period, time.monotonic())

    def serve(self, exchange_id: str) -> None:
        """A request of the client `web` with 12 + 34 tokens has ended."""
        self.usage.record(
            record(
                exchange_id=exchange_id,
                client="web",
                opened_at=1.0,
                is_response_read=True,
                input_tokens=12,
                output_tokens=34,
            )
        )


@asynccontextmanager
async def books(path: Path, unix_now: float) -> AsyncIterator[Books]:
    subject = Books(path, unix_now)
    subject.usage.start()
    try:
        yield subject
    finally:
        await subject.usage.aclose()


def write(path: Path, tokens: dict[float, int]) -> None:
    """What was counted at these Unix times."""
    store = UsageStore(path)
    hourly = {
        (int(at) // HOUR_S * HOUR_S, UsageKey("web", "", f"m{number}")): UsageCounts(
            requests=1, prompt_tokens=count, cost=count / 100
        )
        for number, (at, count) in enumerate(tokens.items())
    }
    store.add(hourly)
    store.close()


async def test_what_the_file_has_and_what_is_counted_now(tmp_path: Path) -> None:
    """Of this day, of the days before it in this month, and of nothing else; saved or not."""
    path, now = tmp_path / "usage.db", time.time()
    today, month = days_at(now).day, days_at(now).month
    write(path, {today: 100, month - 1: 7, now: 20})
    before = 0
    if today > month:
        before = 3000
        write(path, {month: 3000})
    async with books(path, now) as subject:
        await subject.days.check()
        assert subject.spent(Period.DAY).tokens == 120
        assert subject.spent(Period.DAY).cost == pytest.approx(1.2)
        assert subject.spent(Period.MONTH).tokens == before + 120
        for number in range(3):
            subject.serve(f"e{number}")
            assert subject.spent(Period.DAY).tokens == 120 + 46 * (number + 1)
            await subject.days.check()
            assert subject.spent(Period.DAY).tokens == 120 + 46 * (number + 1)
        write(path, {now: 5000})
        await subject.days.check()
        exceeded = subject.limits.begin("web", "a", time.monotonic())
        assert exceeded is not None and exceeded.what is Limited.BUDGET, "another picker counts too"
        assert exceeded.retry_after_s <= 86_402
    async with books(path, now) as subject:
        await subject.days.check()
        assert subject.spent(Period.DAY).tokens == 120 + 3 * 46 + 5000, "after a restart"


async def test_a_new_day_has_a_new_budget(tmp_path: Path) -> None:
    path, now = tmp_path / "usage.db", unix_time("2026-05-10 23:59:00")
    write(path, {now: 2000, unix_time("2026-05-11 00:30"): 30})
    async with books(path, now) as subject:
        await subject.days.check()
        assert subject.spent(Period.DAY).tokens == 2030
        subject.now = unix_time("2026-05-11 00:00:01")
        await subject.days.check()
        assert subject.spent(Period.DAY).tokens == 30
        assert subject.spent(Period.MONTH).tokens == 2030
        assert subject.limits.begin("web", "a", time.monotonic()) is None


async def test_books_that_cannot_be_read_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was known holds, with what this process counts."""
    path, now = tmp_path / "usage.db", time.time()
    write(path, {now: 10})
    async with books(path, now) as subject:
        await subject.days.check()
        with monkeypatch.context() as patch:

            def fail(*_: object) -> None:
                raise UsageError("no disk")

            patch.setattr(UsageStore, "read", fail)
            await subject.days.check()
            assert "no disk" in subject.days.problems()[0]
            subject.serve("e1")
            assert subject.spent(Period.DAY).tokens == 56
        await subject.days.check()
        assert subject.days.problems() == () and subject.spent(Period.DAY).tokens == 56


async def test_without_budgets_nothing_is_read(tmp_path: Path) -> None:
    """A reload may set some: then everything is."""
    path, now = tmp_path / "usage.db", time.time()
    write(path, {now: 10})
    async with books(path, now) as subject:
        limits = {"*": ClientLimit(requests=1)}
        subject.limits.renew(limits, 0.0)
        await subject.days.check()
        assert subject.spent(Period.DAY) == Spent()
        subject.limits.renew({"*": ClientLimit(monthly=Budget(cost=1.0))}, 0.0)
        await subject.days.check()
        assert subject.spent(Period.DAY).tokens == 10


async def test_tokens_by_hour(tmp_path: Path) -> None:
    """Saved or not, of each client."""
    path, now = tmp_path / "usage.db", time.time()
    hour = int(now) // HOUR_S * HOUR_S
    write(path, {now: 10, now - HOUR_S: 5, now - 10 * HOUR_S: 3})
    async with books(path, now) as subject:
        subject.serve("e1")
        found = (await subject.usage.hours(hour - HOUR_S))["web"]
        assert sum(found.values()) == 61 and found[hour - HOUR_S] == 5
        assert await subject.usage.hours(hour + 10 * HOUR_S) == {}


class Clock:
    """In place of the module `time`: both clocks move together."""

    def __init__(self, text: str) -> None:
        self._began = unix_time(text)
        self.passed_s = 0.0

    def time(self) -> float:
        return self._began + self.passed_s

    def monotonic(self) -> float:
        return 50_000.0 + self.passed_s


@pytest.fixture(params=["UTC", "America/Los_Angeles", "Pacific/Auckland"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the machine's clocks are set for; some are at another day than UTC."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("eve", "first"), [("2026-02-28", "2026-02-01"), ("2026-12-31", "2026-12-01")]
)
async def test_requests_run_over_the_end_of_a_month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str, eve: str, first: str
) -> None:
    """By UTC, whatever zone the machine is in. What is rejected may come again at that second,
    before anything was read again. A request that runs over it is counted by when it ended, and
    what it reserves holds in both months; nothing is counted twice or lost, nor by a restart."""
    clock, path = Clock(f"{eve} 23:59:50"), tmp_path / "usage.db"
    for module in ("usage", "budget_days"):
        monkeypatch.setattr(f"extproc.app.{module}.time", clock)
    write(path, {unix_time(first): 900, unix_time(f"{eve} 00:00:00"): 60})
    async with books(path, 0.0) as subject:
        limits = subject.limits
        limits.renew(
            {"web": ClientLimit(daily=Budget(tokens=100), monthly=Budget(tokens=1000))}, 0.0
        )
        subject.days = BudgetDays(subject.usage, limits, clock.time)

        def tokens() -> tuple[int, int]:
            day, month = (limits.spent_of("web", one, clock.monotonic()) for one in Period)
            return day.tokens, month.tokens

        def begin(exchange_id: str, reserved: int = 0) -> tuple[Limited, Period | None, int] | None:
            found = limits.begin("web", exchange_id, clock.monotonic(), reserved)
            return None if found is None else (found.what, found.period, round(found.retry_after_s))

        def end(exchange_id: str) -> None:
            limits.end("web", exchange_id, None, clock.monotonic())
            subject.serve(exchange_id)

        await subject.days.check()
        assert tokens() == (60, 960)
        assert begin("over", 39) is None
        assert begin("short") is None
        assert begin("more", 1) is None
        assert begin("none", 1) == (Limited.RESERVED, Period.MONTH, 1)
        end("short")
        assert tokens() == (106, 1006)
        assert begin("late") == (Limited.BUDGET, Period.MONTH, 11)

        clock.passed_s = 10.5  # no check has been made since
        assert tokens() == (0, 0)
        assert begin("new", 59) is None
        assert begin("none", 1) is None
        end("over")
        assert tokens() == (46, 46)
        for _ in range(2):
            await subject.days.check()
            assert tokens() == (46, 46)
        end("more")
        end("new")
        await subject.days.check()
        assert tokens() == (138, 138)
        assert begin("late") == (Limited.BUDGET, Period.DAY, 86_400 - 1 + 1)

        clock.passed_s = 86_410.5
        assert tokens() == (0, 138)
        assert begin("next") is None
        await subject.days.check()
        assert tokens() == (0, 138)
        end("next")
        assert tokens() == (46, 184)
    async with books(path, 0.0) as subject:
        limits = subject.limits
        await BudgetDays(subject.usage, limits, clock.time).check()
        day, month = (limits.spent_of("web", one, clock.monotonic()) for one in Period)
        assert (day.tokens, month.tokens) == (46, 184)
