"""Claims about extproc/app/secret_watch.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from extproc.app.secret_watch import SecretWatch


class Taker:
    """Counts the changes that it is told of."""

    def __init__(self) -> None:
        self.files: set[Path] = set()
        self.changes = 0
        self._changed = asyncio.Event()

    async def change(self) -> None:
        self.changes += 1
        self._changed.set()

    async def was_told(self, times: int) -> None:
        while self.changes < times:
            self._changed.clear()
            await self._changed.wait()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        watch = SecretWatch(lambda: self.files, self.change, interval_s=0.01)
        watch.start()
        try:
            yield
        finally:
            await watch.aclose()


async def test_each_change_is_told(tmp_path: Path) -> None:
    """Written anew, replaced by a rename, gone, there again, and another file: each is one."""
    key = tmp_path / "key"
    key.write_text("one")
    taker = Taker()
    taker.files = {key}
    async with taker.watching():
        await asyncio.sleep(0.05)  # its first look is at what is there
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
