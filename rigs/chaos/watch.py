"""Polls the picker: which servers it knows to be out of service."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from rigs.chaos.records import Closed
from rigs.chaos.stage import Stage
from rigs.picker_pages import CORRECTIONS

INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class Sample:
    """When it was asked and answered, and why which server was out of service, in a word."""

    asked_at: float
    answered_at: float
    pid: int
    out: dict[str, str]


class Watch:
    """`samples` grow while `run` runs; `corrections` are the auditor's, by picker process."""

    def __init__(self, stage: Stage) -> None:
        self.samples: list[Sample] = []
        self.corrections: dict[int, float] = {}
        self._stage = stage

    async def run(self) -> None:
        while True:
            picker = self._stage.members[0].picker
            asked_at = time.monotonic()
            with suppress(httpx.HTTPError, ValueError):  # it is being restarted, or stopped
                status = await self._stage.status()
                if picker is None or picker is not self._stage.members[0].picker:
                    continue
                pid = _decider(status, picker.pid)
                out = {
                    address: why
                    for address, endpoint in status["endpoints"].items()
                    if (why := _why(endpoint))
                }
                self.samples.append(Sample(asked_at, time.monotonic(), pid, out))
                for member in self._stage.members:
                    with suppress(httpx.HTTPError):
                        found = await member.pages.metric(CORRECTIONS) or 0.0
                        self.corrections[pid] = max(self.corrections.get(pid, 0.0), found)
            await asyncio.sleep(INTERVAL_S)


def closed_between(samples: list[Sample]) -> Iterator[Closed]:
    """From the answer that first said so to the question that was last answered so. Pure."""
    since: dict[tuple[str, str], tuple[float, float]] = {}
    pid = 0
    for sample in samples:
        if sample.pid != pid:  # another process, which may know less
            yield from (_closed(key, *times) for key, times in since.items())
            since, pid = {}, sample.pid
        now_out = set(sample.out.items())
        for key in [key for key in since if key not in now_out]:
            yield _closed(key, *since.pop(key))
        for key in now_out:
            began_at = since[key][0] if key in since else sample.answered_at
            since[key] = (began_at, sample.asked_at)
    yield from (_closed(key, *times) for key, times in since.items())


def _closed(key: tuple[str, str], began_at: float, ended_at: float) -> Closed:
    return Closed(server=key[0], why=key[1], began_at=began_at, ended_at=ended_at)


def _decider(status: dict[str, Any], picker: int) -> int:
    """The process that answered: the core, or the picker itself."""
    members = (status.get("processes") or {"members": []})["members"]
    return next((int(one["pid"]) for one in members if one["role"] == "core"), picker)


def _why(endpoint: dict[str, object]) -> str:
    if endpoint["health"] == "down":
        return "down"
    if endpoint["is_removed"]:
        return "removed"
    return "" if endpoint["intent"] == "active" else str(endpoint["intent"])
