"""Work that grows with the fleet, repeated in the event loop."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

MAX_SHARE: Final = 0.05
"""Of a core, for one such work."""


def pause_s(interval_s: float, took_s: float) -> float:
    """Seconds until it is repeated: `interval_s`, or longer if it took so much processor time that
    its share of a core would exceed `MAX_SHARE`."""
    return max(interval_s, took_s / MAX_SHARE)


class PacedWork:
    """Belongs to one event loop, which it keeps busy for as long as `work` takes."""

    def __init__(
        self, name: str, work: Callable[[], object], interval_s: float, log: logging.Logger
    ) -> None:
        """What `work` raises goes to `log`, under its `name`."""
        self._name, self._work, self._interval_s, self._log = name, work, interval_s, log
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._timer is not None

    def start(self) -> None:
        """Do it after each interval from now on, less often where it takes much of a core."""
        self._run_in(self._interval_s)

    def stop(self) -> None:
        """Stop; calling it twice is no error."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._run)

    def _run(self) -> None:
        began_s = time.thread_time()
        try:
            self._work()
        except Exception:  # noqa: BLE001 - logged by its owner
            self._log.exception("%s failed; it is tried again at the next interval", self._name)
        self._run_in(pause_s(self._interval_s, time.thread_time() - began_s))
