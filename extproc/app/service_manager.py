"""Reports the state of this process to systemd, by sd_notify(3). Without systemd, nothing
is sent."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

PINGS_PER_TIMEOUT: Final = 3
USEC_PER_S: Final = 1_000_000


class ServiceManager:
    """systemd, as `NOTIFY_SOCKET` and `WATCHDOG_USEC` of the environment describe it.

    The event loop itself sends the pings of the watchdog: systemd restarts a process whose loop
    hangs for longer than the unit's `WatchdogSec`.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._socket = environment.get("NOTIFY_SOCKET", "")
        is_watched = environment.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        timeout = environment.get("WATCHDOG_USEC", "") if is_watched else ""
        self._ping_s = int(timeout) / USEC_PER_S / PINGS_PER_TIMEOUT if timeout.isdigit() else 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, status: str) -> None:
        """It serves; `status` is what `systemctl status` shows. Starts the pings, which need the
        running event loop."""
        self._send(f"READY=1\nSTATUS={status}")
        if self._socket and self._ping_s > 0:
            self._ping()

    def stopping(self) -> None:
        """It has begun to stop. The pings go on, since a drain may take long."""
        self._send("STOPPING=1\nSTATUS=draining")

    def close(self) -> None:
        """End the pings."""
        if self._timer is not None:
            self._timer.cancel()

    @contextmanager
    def stopping_on_signals(
        self, stop: Callable[[], None], task: asyncio.Task[None]
    ) -> Iterator[None]:
        """At the first SIGTERM or SIGINT call `stop`; a second one cancels `task`, and ends the
        block without an error."""
        is_stopping = False

        def signalled() -> None:
            nonlocal is_stopping
            if is_stopping:
                task.cancel()
                return
            is_stopping = True
            self.stopping()
            stop()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signalled)
        try:
            yield
        except asyncio.CancelledError:
            if not is_stopping:
                raise

    def _ping(self) -> None:
        self._send("WATCHDOG=1")
        self._timer = asyncio.get_running_loop().call_later(self._ping_s, self._ping)

    def _send(self, state: str) -> None:
        """systemd reads this socket all the time; a lost message is better than one waited for."""
        if not self._socket:
            return
        address = f"\0{self._socket[1:]}" if self._socket.startswith("@") else self._socket
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.setblocking(False)
            notify.sendto(state.encode(), address)
