"""Claims about extproc/app/security/secret_reloader.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from extproc.app.security.secret_reloader import SecretReloader


class Taker:
    """Counts the changes that it is told of, and the scrapes its files."""

    def __init__(self) -> None:
        self.files: set[Path] = set()
        self.changes = 0
        self.fault: Exception | None = None
        self._looks = 0
        self._news = asyncio.Event()

    async def change(self) -> None:
        self.changes += 1
        self._news.set()
        if self.fault is not None:
            raise self.fault

    def scrape(self) -> set[Path]:
        self._looks += 1
        self._news.set()
        return self.files

    async def was_told(self, times: int) -> None:
        await self._until(lambda: self.changes >= times)

    async def was_looked_at(self) -> None:
        """Once at least: a scrape is over when the next one begins."""
        await self._until(lambda: self._looks > 1)

    async def _until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_true():
                self._news.clear()
                await self._news.wait()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        watch = SecretReloader(self.scrape, self.change, interval_s=0.01)
        watch.start()
        try:
            yield
        finally:
            await watch.aclose()


async def test_each_change_is_reported(tmp_path: Path) -> None:
    """Written again, replaced by a rename, gone, there again, and another file: each is one."""
    key = tmp_path / "key"
    key.write_text("one")
    taker = Taker()
    taker.files = {key}
    async with taker.watching():
        await taker.was_looked_at()
        assert taker.changes == 0
        key.write_text("two, longer")
        await taker.was_told(1)
        fresh = tmp_path / "fresh"
        fresh.write_text("three")
        fresh.replace(key)
        await taker.was_told(2)
        key.unlink()
        await taker.was_told(3)
        key.write_text("four")
        await taker.was_told(4)
        taker.files = {key, tmp_path / "other"}
        await taker.was_told(5)


async def test_a_change_that_cannot_be_taken_over_is_reported_and_the_next_one_is_seen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for each, and the watch goes on."""
    key = tmp_path / "key"
    taker = Taker()
    taker.files, taker.fault = {key}, RuntimeError("a fault")
    async with taker.watching():
        await taker.was_looked_at()
        for times in (1, 2):
            key.write_text("longer" * times)
            await taker.was_told(times)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["reloading a changed key or certificate failed"] * 2
