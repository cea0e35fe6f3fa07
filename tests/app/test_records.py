"""Claims about extproc/app/records.py: ended requests are found, in memory and in the file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from extproc.app import records as module
from extproc.app.records import Records
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.records.selection import Selection
from extproc.settings.logging_section import RecordsSettings
from tests.fakes.picker import until
from tests.fakes.simulated_traffic import SimulatedTraffic
from tests.telemetry.records import record

ALL = Selection()
START = 1_000_000.0


class Kept:
    """Records with a clock in hand: Unix time is a million ahead of it."""

    def __init__(self, settings: RecordsSettings) -> None:
        self.now = 100.0
        self.traffic = SimulatedTraffic([("big", 1)], [], seed=1)
        self.records = Records(
            settings,
            self.traffic.dispatcher,
            self.traffic.registry,
            lambda: self.now,
            lambda: START + self.now,
        )

    def end(self, name: str, at: float, **changes: object) -> ExchangeRecord:
        """A request ended then, two seconds after it got its slot."""
        ended = record(
            exchange_id=name,
            request_id=f"r-{name}",
            began_at=at - 3.0,
            decided_at=at - 3.0,
            opened_at=at - 2.0,
            duration_s=3.0,
            **changes,
        )
        self.now = max(self.now, at)
        self.records.request_ended(ended)
        return ended

    async def names(self, *, since_s: float = 0.0, limit: int = 100, after: int = 0) -> list[str]:
        found, _ = await self.records.select(ALL, since_s, limit, after)
        return [each.exchange_id for each in found]


@asynccontextmanager
async def keeping(
    monkeypatch: pytest.MonkeyPatch, path: Path | None = None, size: int = 100
) -> AsyncIterator[Kept]:
    """Records that are written at once; closed afterwards."""
    monkeypatch.setattr(module, "SAVE_S", 0.001)
    kept = Kept(RecordsSettings(size=size, path=None if path is None else str(path)))
    kept.records.start()
    try:
        yield kept
    finally:
        await kept.records.aclose()


async def test_the_last_ones_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """By either id; those that took no slot are not kept; a number goes on after a response."""
    async with keeping(monkeypatch, size=2) as kept:
        for number in range(3):
            kept.end(f"e{number}", 101.0 + number)
        kept.end("list", 104.0, outcome=Outcome.PASSED)
        assert await kept.names() == ["e1", "e2"]
        assert await kept.names(limit=1) == ["e2"]
        assert await kept.names(since_s=1.5) == ["e2"]
        assert await kept.names(after=2) == ["e2"] and kept.records.total == 3
        assert [each.ended_at for each in await kept.records.find("e2")] == [START + 103.0]
        assert await kept.records.find("r-e2") == await kept.records.find("e2")
        assert await kept.records.find("e0") == []


async def test_older_ones_are_in_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also those of the process before; and each is listed once."""
    path = tmp_path / "records.jsonl"
    async with keeping(monkeypatch, path) as kept:
        kept.end("before", 90.0)
    async with keeping(monkeypatch, path, size=2) as kept:
        for number in range(4):
            kept.end(f"e{number}", 101.0 + number)
        kept.now += 60.0
        await until(lambda: b'"e3"' in path.read_bytes())
        assert await kept.names() == ["before", "e0", "e1", "e2", "e3"]
        assert await kept.names(limit=3) == ["e1", "e2", "e3"]
        assert await kept.names(since_s=62.5) == ["e1", "e2", "e3"]
        assert await kept.names(since_s=63.5) == ["e0", "e1", "e2", "e3"]
        _, total = await kept.records.select(ALL, 0.0, 3, 0)
        assert total > 3
        (found,) = await kept.records.find("r-before")
        assert found.ended_at == START + 90.0
        found_all, _ = await kept.records.select(Selection(outcome="rejected"), 0.0, 10, 0)
        assert found_all == []


async def test_a_record_is_written_when_its_tokens_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The count of usage may come after its end."""
    path = tmp_path / "records.jsonl"
    async with keeping(monkeypatch, path) as kept:
        ended = kept.end("e1", 101.0)
        await asyncio.sleep(0.02)
        assert not path.exists()
        ended.output_tokens = 42
        kept.now += module.SETTLE_S
        await until(lambda: path.exists() and path.stat().st_size > 0)
    assert b'"generated_tokens":42' in path.read_bytes()


async def test_a_full_disk_is_logged_once_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that is not there stands for the disk; when there is room, all is written."""
    path = tmp_path / "later" / "records.jsonl"
    with caplog.at_level(logging.INFO, "coxswain.records"):
        async with keeping(monkeypatch, path) as kept:
            kept.end("e1", 101.0)
            kept.now += 60.0
            await until(lambda: bool(kept.records.problems()))
            kept.end("e2", 162.0)
            kept.now += 60.0
            await asyncio.sleep(0.05)
            assert [each.exchange_id for each in await kept.records.find("e1")] == ["e1"]
            path.parent.mkdir()
            await until(lambda: not kept.records.problems())
            assert path.read_bytes().count(b"\n") == 2
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == 2 and "cannot be written: No such file" in said[0]


async def test_what_waits_for_the_disk_is_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What does not fit is counted."""
    monkeypatch.setattr(module, "MAX_BATCH", 3)
    path = tmp_path / "later" / "records.jsonl"
    with caplog.at_level(logging.INFO, "coxswain.records"):
        async with keeping(monkeypatch, path, size=1) as kept:
            for number in range(5):
                kept.end(f"e{number}", 101.0)
            kept.now += 60.0
            await until(lambda: bool(kept.records.problems()))
            path.parent.mkdir()
            await until(lambda: not kept.records.problems())
    assert path.read_bytes().count(b"\n") == 3
    assert "2 were lost" in caplog.records[-1].getMessage()


async def test_who_ran_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In memory; of one whose neighbours are forgotten there, in the file; else it is not known."""
    path = tmp_path / "records.jsonl"
    async with keeping(monkeypatch, path, size=2) as kept:
        for name, at in (("a", 110.0), ("b", 111.0), ("c", 115.0), ("d", 116.0)):
            kept.end(name, at)
        (c,) = await kept.records.find("c")
        beside = await kept.records.beside(c)
        assert beside is not None and (beside.count, beside.mean, beside.most) == (1, 0.5, 1)
        assert not beside.all_known, "nothing is written yet"
        kept.now += 60.0
        await until(lambda: path.exists() and b'"d"' in path.read_bytes())
        beside = await kept.records.beside(c)
        assert beside is not None and (beside.count, beside.all_known) == (1, True)
        (b,) = await kept.records.find("b")
        beside = await kept.records.beside(b)
        assert beside is not None and (beside.count, beside.mean) == (1, 0.5)
        kept.end("rejected", 180.0, outcome=Outcome.REJECTED, endpoint=None)
        (rejected,) = await kept.records.find("rejected")
        assert await kept.records.beside(rejected) is None


async def test_without_a_file_they_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with keeping(monkeypatch, size=1) as kept:
        kept.end("a", 110.0)
        (a,) = await kept.records.find("a")
        beside = await kept.records.beside(a)
        assert beside is not None and (beside.count, beside.all_known) == (0, True)
        kept.end("b", 110.5)
        beside = await kept.records.beside(a)
        assert beside is not None and (beside.count, beside.all_known) == (1, False)
