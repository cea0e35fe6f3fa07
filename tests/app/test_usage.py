"""Claims about extproc/app/usage.py."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from extproc.app import usage as app_usage
from extproc.app.service import Service
from extproc.app.usage import UNREAD, OpenLeases, Usage
from extproc.core.client_limits import ClientLimit, ClientLimits, Limited
from extproc.core.exchange_registry import ExchangeRegistry, KnownExchange
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.settings import Settings
from extproc.stream.exchange import Exchange, ExchangeOptions
from extproc.usage.counts import UsageCounts, UsageKey
from extproc.usage.meter import UsageMeter
from extproc.usage.store import UsageError, UsageStore, check_writable
from tests.fakes import envoy_messages as envoy
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


async def requests_of(usage: Usage) -> int:
    return sum(row.counts.requests for row in await usage.read(0.0, ALL, 10))


def saved_in(path: Path) -> int:
    """The same as `saved_requests`; 0 for what is no file of usage."""
    try:
        return saved_requests(path) if path.exists() else 0
    except sqlite3.Error:
        return 0


async def test_without_a_file_it_counts_in_memory_until_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the folder is not mounted yet: the picker serves, and shows what it has counted."""
    monkeypatch.setattr(app_usage, "RETRY_S", 0.05)
    path = tmp_path / "missing" / "usage.db"
    usage = usage_in(path)
    usage.start()
    ended(usage)
    await until(lambda: bool(usage.file_problems()))
    assert "usage.path" in usage.file_problems()[0]
    (row,) = await usage.read(0.0, ["client"], 10)
    assert (row.key.client, row.key.model, row.counts.requests) == ("web", "", 1)
    assert (await usage.read(time.time() + 7200, ["client"], 10)) == []
    (total,) = await usage.read(time.time() + 7200, [], 10)
    assert total.counts.requests == 0
    path.parent.mkdir()
    await until(lambda: not usage.file_problems())
    assert await requests_of(usage) == 1 and saved_requests(path) == 1
    await usage.aclose()
    assert caplog.text.count("kept in memory") == 1


async def test_what_could_never_be_saved_is_logged_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    usage = usage_in(tmp_path / "missing" / "usage.db")
    usage.start()
    ended(usage)
    await usage.aclose()
    assert "the usage of 1 requests was not saved" in caplog.text


def damage(path: Path, part: str) -> None:
    """Make a file of usage with a thousand hours, and overwrite a part."""
    store = UsageStore(path)
    hours = range(0, 3600_000, 3600)
    store.add({(hour, UsageKey()): UsageCounts(requests=1) for hour in hours})
    store.close()
    content = bytearray(path.read_bytes())
    first, last = {"head": (0, 100), "all": (0, len(content)), "rows": (4_096, 16_384)}[part]
    content[first:last] = b"\xa5" * (last - first)
    path.write_bytes(content)


@pytest.mark.parametrize("part", ["head", "all", "rows"])
async def test_a_damaged_file_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """Whether that shows at the start or with the first counts: nothing of it is lost, a new file
    is begun, and it is said for as long as the picker runs."""
    path = tmp_path / "usage.db"
    damage(path, part)
    before = path.read_bytes()
    with pytest.raises(UsageError):
        check_writable(path)
    usage = usage_in(path)
    usage.start()
    ended(usage)
    await until(lambda: bool(usage.file_problems()) and saved_in(path) == 1)
    await usage.aclose()
    found = [name for name in os.listdir(tmp_path) if re.fullmatch(r"usage\.db\.damaged-\w+", name)]
    (aside,) = (tmp_path / name for name in found)
    assert len(aside.read_bytes()) >= len(before)
    (problem,) = usage.file_problems()
    assert str(aside) in problem and "new file" in problem and str(aside) in caplog.text


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_picker_serves_and_says_so_everywhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_there: bool
) -> None:
    """With a damaged file, or one that cannot be made: readiness, `/status`, metric and log."""
    path = tmp_path / ("." if is_there else "missing") / "usage.db"
    if is_there:
        damage(path, "all")
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    made_of = {"listen": anywhere, "usage": {"path": str(path)}, "drain_timeout_s": 0.0}
    service = Service(Settings.model_validate(made_of))
    await service.start()
    try:
        url = f"http://127.0.0.1:{service.http_port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            ready = (await client.get("/readyz")).text
            (problem,) = (await client.get("/status")).json()["problems"]
            metrics = (await client.get("/metrics")).text
    finally:
        await service.stop()
    assert str(path) in problem and f"problem: {problem}\n" in ready
    assert "\ncoxswain_problems 1\n" in metrics
    assert problem.partition(";")[0] in caplog.text


async def test_a_file_of_something_else_stays(tmp_path: Path) -> None:
    """A path that was mistyped costs nobody a file; counts are in memory."""
    path = tmp_path / "notes.txt"
    path.write_text("notes " * 1_000)
    usage = usage_in(path)
    usage.start()
    ended(usage)
    await until(lambda: bool(usage.file_problems()))
    assert "something else" in usage.file_problems()[0]
    assert await requests_of(usage) == 1
    await usage.aclose()
    assert path.read_text() == "notes " * 1_000 and os.listdir(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("is_moved", [True, False])
async def test_a_file_that_is_moved_away_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_moved: bool
) -> None:
    """Or removed: counts go into a new one, and what was moved has all that came before."""
    path = tmp_path / "usage.db"
    usage = usage_in(path)
    usage.start()
    ended(usage)
    await until(lambda: saved_in(path) == 1)
    if is_moved:
        path.rename(tmp_path / "old.db")
    else:
        path.unlink()
    await until(lambda: bool(usage.file_problems()))
    assert "moved away or removed" in usage.file_problems()[0]
    ended(usage)
    await until(lambda: saved_in(path) == 1)
    await usage.aclose()
    assert not is_moved or saved_in(tmp_path / "old.db") == 1
    assert caplog.text.count("moved away or removed") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system, which takes root")
async def test_a_disk_that_is_full_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts are in memory until there is room."""
    monkeypatch.setattr(app_usage, "RETRY_S", 0.05)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False).returncode:  # noqa: ASYNC221 - at once
        pytest.skip("no file system can be mounted here")
    try:
        with (disk / "other").open("wb", buffering=0) as other, suppress(OSError):
            while other.write(b"x" * 4_096):
                pass
        usage = usage_in(disk / "usage.db")
        usage.start()
        ended(usage)
        await until(lambda: bool(usage.file_problems()))
        assert "full" in usage.file_problems()[0] and await requests_of(usage) == 1
        (disk / "other").unlink()
        await until(lambda: not usage.file_problems())
        assert await requests_of(usage) == saved_requests(disk / "usage.db") == 1
        await usage.aclose()
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # noqa: ASYNC221 - at once


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
    await until(lambda: bool(usage.file_problems()))
    assert "cannot be saved" in usage.file_problems()[0]
    with sqlite3.connect(path) as file:
        file.execute("ALTER TABLE gone RENAME TO usage")
    await until(lambda: not usage.file_problems())
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
        file.execute("INSERT INTO usage (hour, client, requests) VALUES (?, 'a', 1)", (old,))
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


OVERFLOW = (Path(__file__).parents[1] / "data/llamacpp/overflow_stream_chat.txt").read_bytes()


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("at_a_front", [False, True])
async def test_an_overflow_is_learned_where_bodies_pass_nobody_else(
    tmp_path: Path, is_over: bool, at_a_front: bool
) -> None:
    """Envoy sends a copy of the response for the count, before or behind the end of the exchange,
    when nobody may be left who ran there."""
    fleet, registry = SmallFleet(2), ExchangeRegistry()
    address = fleet.addresses[0]
    usage = Usage(tmp_path / "usage.db", 30, fleet.dispatcher, registry, NO_LIMITS)
    exchange = Exchange(fleet.dispatcher, ExchangeOptions(), fleet.now)
    known = cast("KnownExchange", exchange)
    registry.enter(known)
    for message in (
        envoy.request_headers(),
        envoy.response_headers(content_type="text/event-stream", served=str(address)),
    ):
        exchange.feed(message, fleet.now)
    assert exchange.lease is not None
    if is_over:
        ended(usage, exchange_id=exchange.id, endpoint=address, is_response_read=False)
        exchange.end(fleet.now)
        registry.leave(known)
    if at_a_front:
        usage.take_response((exchange.id, True, 3, True, 1, 2, None, None, None))
    else:
        response = usage.meter.open(exchange.id)
        response.tail.add(OVERFLOW)
        usage.meter.close(response, is_whole=True)
    assert fleet.endpoint(address).overflows == 1
    assert not fleet.endpoint(address).is_ejected
