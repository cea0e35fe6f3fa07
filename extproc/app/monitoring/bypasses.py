"""Counts the requests that Envoy sent to servers without the picker, although it was there.

Envoy fails open: if the picker does not answer in time, or its stream breaks, the request goes to
any server. The access log stream reports each such request when it ends. Not counted are requests
that began before this picker served or while Envoy had yet to find it, and those of a picker that
is stopping: there was no picker to ask.
"""

import logging
from collections.abc import Callable
from typing import Final

from extproc.app.monitoring.loop_lag import LoopLag
from extproc.app.monitoring.recent import RECENT_TEXT, RecentValues

FOUND_AFTER_S: Final = 5.0
"""Envoy checks every second whether the picker is there, and may find it gone three times."""

log = logging.getLogger("coxswain.service")


class Bypasses:
    """Belongs to one event loop. A report costs a few microseconds."""

    def __init__(self, clock: Callable[[], float], lag: LoopLag) -> None:
        self._clock = clock
        self._lag = lag
        self._serving_at: float | None = None
        self._recent = RecentValues(clock)
        self.total = 0
        """Since the start."""

    def start(self) -> None:
        """The picker serves from now on."""
        self._serving_at = self._clock()

    def stop(self) -> None:
        """The picker takes no new requests from now on."""
        self._serving_at = None

    def add(self, duration_s: float) -> None:
        """Envoy reported a request without the picker, which ended now and took `duration_s`."""
        began_at = self._clock() - duration_s
        if self._serving_at is None or began_at < self._serving_at + FOUND_AFTER_S:
            return
        self.total += 1
        is_first = not self._recent.total
        self._recent.add(1)
        if is_first:
            log.warning("%s", self._text())

    @property
    def recent(self) -> int:
        """How many were reported in the last minutes."""
        return int(self._recent.total)

    def problems(self) -> tuple[str, ...]:
        """What is wrong, as text for operators; empty without a problem."""
        return (self._text(),) if self._recent.total else ()

    def _text(self) -> str:
        count = self.recent
        remedy = (
            f"the picker itself was blocked for up to {self._lag.worst_s:.1f} s: give it a CPU "
            "core of its own"
            if self._lag.is_bad
            else "look for ext_proc in Envoy's log and counters, and compare its configuration "
            "with `coxswain config envoy`"
        )
        return (
            f"Envoy sent {count} {'request' if count == 1 else 'requests'} {RECENT_TEXT} to "
            f"servers without asking this picker, which shows them as foreign slots; {remedy}"
        )
