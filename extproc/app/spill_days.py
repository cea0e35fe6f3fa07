"""Closes tier 2 for the rest of a day that has used up its bound. Days are those of UTC."""

import logging
import time
from collections.abc import Callable
from typing import Final

from extproc.app.day_checks import DayChecks
from extproc.app.usage import Usage
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.settings.spill_section import SpillSettings
from extproc.usage.store import UsageError

DAY_S: Final = 86_400
FAR: Final = "2"

log = logging.getLogger("coxswain.spill")


class SpillDays(DayChecks):
    """Requests are counted when they begin, from what the file has of the day at the start; cost is
    known when they have ended."""

    def __init__(
        self,
        usage: Usage,
        dispatcher: Dispatcher,
        settings: Callable[[], SpillSettings],
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        """`settings` are those in force."""
        super().__init__("bounding the spill of a day")
        self._usage = usage
        self._dispatcher = dispatcher
        self._settings = settings
        self._unix_clock = unix_clock
        self._day = -1
        self._before = 0
        """The requests of the day that this process did not send."""
        self._mark = 0
        """What this process had sent when the day began for it."""
        self._closed = ""

    def problems(self) -> tuple[str, ...]:
        """Why tier 2 is closed, as text for operators."""
        return (self._closed,) if self._closed else ()

    async def check(self) -> None:
        """Compare what the day has used with its bound. Never raises `UsageError`: what cannot be
        read closes the tier."""
        settings = self._settings()
        if not settings.has_day_bound:
            self._set(None, "")
            return
        day = int(self._unix_clock() // DAY_S)
        try:
            rows = await self._usage.read(day * DAY_S, ["tier"], 100)
        except UsageError as error:
            self._set(0, f"tier 2 is closed, as its use today cannot be read: {error}")
            return
        far = [row.counts for row in rows if row.key.tier == FAR]
        spilled = self._dispatcher.view.spilled
        if day != self._day:
            is_first = self._day < 0
            self._before = sum(counts.requests for counts in far) if is_first else 0
            self._mark = 0 if is_first else spilled
            self._day = day
        left: int | None = None
        if settings.max_requests_per_day is not None:
            left = max(0, settings.max_requests_per_day - self._before - (spilled - self._mark))
        cost = sum(counts.cost for counts in far)
        if settings.max_cost_per_day is not None and cost >= settings.max_cost_per_day:
            self._set(0, f"tier 2 is closed until 0:00 UTC: it has cost {cost:.2f} today")
        elif left == 0:
            self._set(0, "tier 2 is closed until 0:00 UTC: it has had its requests of today")
        else:
            self._set(left, "")

    def _set(self, left: int | None, closed: str) -> None:
        self._dispatcher.limit_spill(left, closed)
        if closed and not self._closed:
            log.warning("%s", closed)
        elif self._closed and not closed:
            log.info("tier 2 is open again")
        self._closed = closed
