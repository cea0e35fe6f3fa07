"""StatsD gauges over UDP, with Paddler's names.

Three gauges an interval are one datagram. Nobody answers, so nothing is waited for: what
cannot be sent is gone, and the next interval sends the state at its time.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping

from extproc.settings.logging_section import StatsdSettings

log = logging.getLogger("coxswain.telemetry")


def datagram(prefix: str, gauges: Mapping[str, int]) -> bytes:
    """One line a gauge: `prefix.name:value|g`."""
    head = f"{prefix.rstrip('.')}." if prefix.strip(".") else ""
    return "\n".join(f"{head}{name}:{value}|g" for name, value in gauges.items()).encode()


class Statsd:
    """Sends `read()` each interval, at once for the first time. Belongs to one event loop."""

    def __init__(self, settings: StatsdSettings, read: Callable[[], Mapping[str, int]]) -> None:
        self._settings = settings
        self._read = read
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="statsd")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            try:
                await self._send()
            except OSError as error:
                if not self._is_failing:
                    self._is_failing = True
                    log.warning("StatsD at %s: %s; retrying", self._settings.host, error.strerror)
            else:
                self._is_failing = False
            await asyncio.sleep(self._settings.interval_s)

    async def _send(self) -> None:
        """Resolved each time, because the receiver may have moved."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            self._settings.host, self._settings.port, type=socket.SOCK_DGRAM
        )
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as udp:
            udp.setblocking(False)
            udp.sendto(datagram(self._settings.prefix, self._read()), address)
