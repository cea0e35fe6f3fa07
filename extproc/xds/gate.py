"""Holds discovery responses until the fleet is known."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Gate:
    """Shut until `open` is called, or somebody waited for `hold_s`. Belongs to one event loop.

    A picker that just started may not know its fleet yet, and an empty answer would take their
    hosts from Envoys that serve on without it.
    """

    def __init__(self, hold_s: float) -> None:
        self.is_open = False
        self.on_open: list[Callable[[], None]] = []
        self._hold_s = hold_s
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """Somebody waits before it."""
        if self._timer is None and not self.is_open:
            self._timer = asyncio.get_running_loop().call_later(self._hold_s, self.open)

    def open(self) -> None:
        """The fleet is known, though it may be empty; said again, it means nothing."""
        if self.is_open:
            return
        self.is_open = True
        self.close()
        for listener in self.on_open:
            listener()

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
