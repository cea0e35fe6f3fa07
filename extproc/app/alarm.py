"""One timer for the whole core: it rings at the earliest time that was asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Alarm:
    """Calls `ring(now)` on the event loop. Times are those of `loop.time`, monotonic seconds."""

    def __init__(self, ring: Callable[[float], None]) -> None:
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    def wake_at(self, when: float) -> None:
        """Ring at `when`, unless it rings earlier anyway. What rings asks again for the rest."""
        if self._handle is not None:
            if self._handle.when() <= when:
                return
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_at(when, self._go_off)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _go_off(self) -> None:
        self._handle = None
        self._ring(asyncio.get_running_loop().time())
