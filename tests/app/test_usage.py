"""Claims about extproc/app/usage.py."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extproc.app.usage import UNREAD, OpenLeases, Usage
from extproc.core.client_limits import ClientLimit, ClientLimits, Limited
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.scheduler.exchange_registry import ExchangeRegistry
from extproc.settings import SettingsError
from extproc.usage.counts import UsageKey
from extproc.usage.meter import UsageMeter
from tests.fakes.patience import PATIENCE_S
from tests.fakes.small_fleet import SmallFleet
from tests.telemetry.records import record

ALL = UsageKey._fields
NO_LIMITS = ClientLimits({})


def usage_in(path: Path) -> Usage:
    return Usage(path, 30, SmallFleet(1).dispatcher, ExchangeRegistry(), NO_LIMITS)


def ended(usage: Usage, **changes: Any) -> None:
    """A request of the client `web` with 12 + 34 tokens, which passed in full duplex."""
    given = {
        "client": "web",
        "opened_at": 1.0,
        "slot_s": 2.0,
        "is_response_read": True,
        "input_tokens": 12,
        "output_tokens": 34,
    }
    usage.record(record(**(given | changes)))


def saved_requests(path: Path) -> int:
    with sqlite3.connect(path) as file:
        (requests,) = file.execute("SELECT TOTAL(requests) FROM usage").fetchone()
    return int(requests)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for it, for at most a minute."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  # a file and a thread leave no event
            await asyncio.sleep(0.05)


async def test_usage_is_kept_over_restarts(tmp_path: Path) -> None:
    """What was counted last is saved when the picker stops."""
    path = tmp_path / "usage.db"
    for _ in range(2):
        usage = usage_in(path)
        usage.start()
        ended(usage)
        await usage.aclose()
    usage = usage_in(path)
    usage.start()
    ended(usage)
    rows = await usage.read(0.0, ALL, 10)
    assert [(row.key.client, row.counts.requests, row.counts.prompt_tokens) for row in rows] == [
        ("web", 3, 36)
    ]
    assert [counts.requests for counts in usage.since_start().values()] == [1]
    await usage.aclose()
    await usage.aclose()


async def test_usage_is_saved_while_the_picker_runs(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    usage = usage_in(path)
    usage.start()
    ended(usage)
    await until(lambda: saved_requests(path) == 1)
    await usage.aclose()


async def test_a_file_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    usage = usage_in(tmp_path / "missing" / "usage.db")
    with pytest.raises(SettingsError, match=r"usage\.path"):
        usage.start()
    await usage.aclose()


async def test_what_cannot_be_saved_is_kept_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it can; the requests do not notice."""
    path = tmp_path / "usage.db"
    usage = usage_in(path)
    usage.start()
    with sqlite3.connect(path) as file:
        file.execute("ALTER TABLE usage RENAME TO gone")
    ended(usage)
    await until(lambda: bool(usage.problems()))
    assert "cannot be saved" in usage.problems()[0]
    with sqlite3.connect(path) as file:
        file.execute("ALTER TABLE gone RENAME TO usage")
    await until(lambda: not usage.problems())
    assert (await usage.read(0.0, ALL, 10))[0].counts.requests == 1
    assert caplog.text.count("kept in memory") == 1
    await usage.aclose()


async def test_a_model_has_the_fleets_name(tmp_path: Path) -> None:
    """Never a client's text, of which there may be any number; also for a rejected request."""
    fleet = SmallFleet(1)
    models = (ModelReading(name="tiny", aliases=("small",)),)
    observation = Observation(
        address=fleet.addresses[0],
        began_at=fleet.now,
        answered_at=fleet.now,
        status=ScrapeStatus.READY,
        slots=1,
        busy_slots=0,
        models=models,
    )
    fleet.dispatcher.observe(observation, fleet.now)
    usage = Usage(tmp_path / "usage.db", 30, fleet.dispatcher, ExchangeRegistry(), NO_LIMITS)
    for name in ("small", "tiny", "x" * 50):
        ended(usage, endpoint=None, model=name)
    assert {key.model for key in usage.since_start()} == {"tiny", ""}


async def test_an_envoy_with_an_old_configuration_is_a_problem(tmp_path: Path) -> None:
    usage = usage_in(tmp_path / "usage.db")
    usage.meter.unread = UNREAD
    assert "coxswain config envoy" in usage.problems()[0]


async def test_a_fault_of_the_count_is_no_fault_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usage = usage_in(tmp_path / "usage.db")
    monkeypatch.setattr(UsageMeter, "record", lambda *_: 1 / 0)
    ended(usage)
    assert "counting exchange e1 failed" in caplog.text


async def test_old_hours_are_forgotten(tmp_path: Path) -> None:
    """After `keep_days`, though nobody reads them."""
    path = tmp_path / "usage.db"
    usage = usage_in(path)
    usage.start()
    await usage.aclose()
    with sqlite3.connect(path) as file:
        old = int(time.time()) - 31 * 86_400
        file.execute("INSERT INTO usage VALUES (?, 'a', '', '', 1, 0, 0, 1, 0, 1, 0.0)", (old,))
    usage = usage_in(path)
    usage.start()
    await until(lambda: not saved_requests(path))
    await usage.aclose()


async def test_the_tokens_of_a_client_count_for_its_limit(tmp_path: Path) -> None:
    limits = ClientLimits({"web": ClientLimit(tokens_per_minute=46)})
    usage = Usage(tmp_path / "usage.db", 30, SmallFleet(1).dispatcher, ExchangeRegistry(), limits)
    assert limits.begin("web", "a", time.monotonic()) is None
    for number in range(2):
        ended(usage, exchange_id=f"e{number}")
    ended(usage, exchange_id="e2", client="")
    exceeded = limits.begin("web", "b", time.monotonic())
    assert exceeded is not None and exceeded.what is Limited.TOKENS


def test_a_scrape_is_not_about_requests_that_got_their_slot_after_it() -> None:
    """Such as those that were queued and got it by this scrape."""
    fleet = SmallFleet(1)
    open_leases = OpenLeases(fleet.dispatcher, ExchangeRegistry())
    began_at, answered_at = fleet.now, fleet.now + 1.0
    fleet.now = answered_at
    address = fleet.pick().address
    assert open_leases.running(address, began_at, answered_at) == 0
    assert open_leases.running(address, began_at, answered_at + 0.1) is None, "it began meanwhile"
    assert open_leases.running(address, answered_at + 0.1, answered_at + 1.0) == 1
