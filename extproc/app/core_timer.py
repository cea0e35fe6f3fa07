"""One timer for the whole core: it fires at the earliest time that was requested."""

import asyncio
import time
from collections.abc import Callable


class CoreTimer:
    """Calls `fire(now)` on the event loop. Times are monotonic seconds.

    Two things are uvloop's: `call_at` returns a handle without `when()` for a time that is less
    than half a millisecond away, so the timer remembers by itself when it is due; and `loop.time`
    counts whole milliseconds, so `now` is read from the clock that the core's other callers use.
    """

    def __init__(self, fire: Callable[[float], None]) -> None:
        self._fire = fire
        self._due_at = 0.0
        self._handle: asyncio.Handle | None = None

    def wake_at(self, when: float) -> None:
        """Fire at `when`, unless an earlier call is due already. Never blocks."""
        if self._handle is not None:
            if self._due_at <= when:
                return
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_at(when, self._on_due)
        self._due_at = when

    def stop(self) -> None:
        """Cancel the timer; calling it twice is no error."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _on_due(self) -> None:
        self._handle = None
        self._fire(time.monotonic())
