"""Reads Envoys' own counters about the picker: what they gave up, whatever became of the request.

The access log stream knows only what ended and reached this picker. Envoy counts everything: also
requests that went past a picker that was down, and streams that it gave up in the middle.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import aiohttp

from extproc.app.monitoring.recent import RECENT_TEXT, RecentValues
from extproc.transport.descriptors import own_fault

INTERVAL_S: Final = 10.0
TIMEOUT_S: Final = 5.0
FAILURES_TO_SAY: Final = 3
MAX_BYTES: Final = 1 << 20
TIMEOUTS: Final = "message_timeouts"
KINDS: Final = (TIMEOUTS, "failure_mode_allowed", "streams_failed")
PATH: Final = "/stats/prometheus?filter=ext_proc"
_LINE: Final = re.compile(
    rf"^envoy_http_ext_proc_(?:\w+_)?({'|'.join(KINDS)})(?:\{{[^}}]*\}})? (\d+)$", re.MULTILINE
)

log = logging.getLogger("coxswain.service")


class UnreadableError(Exception):
    """No counters; `str(error)` says why."""


class EnvoyCounters:
    """Reads every `INTERVAL_S` from `start` to `aclose`; `addresses` are host:port of Envoys' admin
    or metrics ports. Belongs to one event loop."""

    def __init__(self, addresses: Sequence[str], clock: Callable[[], float]) -> None:
        self._envoys = [_Envoy(address, clock) for address in addresses]
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Read from now on; nothing happens without addresses."""
        if self._envoys:
            self._task = asyncio.create_task(self._run(), name="read Envoys' counters")

    async def aclose(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def read(self) -> Mapping[tuple[str, ...], int]:
        """The counters by Envoy's address and kind; those that cannot be read are left out."""
        return {
            (envoy.address, kind): count
            for envoy in self._envoys
            for kind, count in envoy.counts.items()
        }

    def problems(self) -> tuple[str, ...]:
        """What is wrong, as text for operators; empty without a problem."""
        return tuple(text for envoy in self._envoys if (text := envoy.problem()))

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await asyncio.gather(*(envoy.refresh(session) for envoy in self._envoys))
                await asyncio.sleep(INTERVAL_S)


class _Envoy:
    """The counters of one Envoy, as last read."""

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        self.address = address
        self.counts: dict[str, int] = {}
        self._last_timeouts: int | None = None
        self._recent = RecentValues(clock)
        self._failures = 0
        self._failure = ""

    async def refresh(self, session: aiohttp.ClientSession) -> None:
        """Read once; never raises for what the network or the server does."""
        try:
            self.counts = await _read(session, f"http://{self.address}{PATH}")
        except (aiohttp.ClientError, TimeoutError, OSError, UnreadableError) as error:
            reason = str(error) if isinstance(error, UnreadableError) else "it does not answer"
            if fault := own_fault(error):
                reason = f"this process has reached a limit ({fault})"
            self._fail(reason)
            return
        self._failures, self._failure = 0, ""
        self._note(self.counts.get(TIMEOUTS, 0))

    def _fail(self, reason: str) -> None:
        """Say so once it has failed a few times in a row: Envoy may start after the picker."""
        self.counts = {}
        self._failures += 1
        if self._failures >= FAILURES_TO_SAY:
            if not self._failure:
                log.warning("cannot read the counters of Envoy at %s: %s", self.address, reason)
            self._failure = reason

    def problem(self) -> str:
        """What is wrong with it; empty without a problem."""
        if self._failure:
            return f"cannot read the counters of Envoy at {self.address}: {self._failure}"
        return self._text() if self._recent.total else ""

    def _note(self, timeouts: int) -> None:
        last, self._last_timeouts = self._last_timeouts, timeouts
        if last is None or timeouts <= last:  # the first reading, or an Envoy that restarted
            return
        is_first = not self._recent.total
        self._recent.add(timeouts - last)
        if is_first:
            log.warning("%s", self._text())

    def _text(self) -> str:
        count = int(self._recent.total)
        return (
            f"Envoy at {self.address} waited {count} {'time' if count == 1 else 'times'} "
            f"{RECENT_TEXT} for longer than envoy.message_timeout_s and went on without this "
            "picker: give the picker a CPU core of its own, or raise that setting"
        )


async def _read(session: aiohttp.ClientSession, url: str) -> dict[str, int]:
    """The sum of each counter over Envoy's listeners; raises what aiohttp does, and
    `UnreadableError`."""
    async with session.get(url, allow_redirects=False) as response:
        if response.status != 200:
            raise UnreadableError(f"status {response.status}")
        body = await response.content.read(MAX_BYTES)
    counts = dict.fromkeys(KINDS, 0)
    for kind, count in _LINE.findall(body.decode("utf-8", "replace")):
        counts[kind] += int(count)
    return counts
