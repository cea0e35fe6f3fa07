"""What is checked each second by the counts of usage: budgets of clients, the bounds of a day."""

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Final

CHECK_S: Final = 1.0
"""How often the counts are read, which other pickers may write too."""

log = logging.getLogger("coxswain.usage")


class DayChecks(ABC):
    """Checks again and again from `start` to `aclose`, whatever one check raises. Check once before
    the first request is served."""

    def __init__(self, what: str) -> None:
        """`what` names the work in logs."""
        self._what = what
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def check(self) -> None:
        """Read the counts, and act by them. Never raises `UsageError`."""

    @abstractmethod
    def problems(self) -> tuple[str, ...]:
        """What operators should know, as texts for them."""

    def start(self) -> None:
        """Begin to check."""
        self._task = asyncio.create_task(self._run(), name=self._what)

    async def aclose(self) -> None:
        """Check no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.check()
            except Exception:
                log.exception("%s failed; it goes on", self._what)
