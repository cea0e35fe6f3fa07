"""What must be gone when no request is: asked of the picker, of Envoy and of the servers."""

import asyncio
import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx

from rigs.books import open_books
from rigs.chaos.launch import TASK
from rigs.chaos.records import Leftover
from rigs.chaos.stage import Stage

CALM_S = 60.0
"""A slot whose client left may stay taken for `ledger.draining_cap_s`; what is left so long after
that is left for good."""
POLL_S = 0.2
CORRECTIONS = "coxswain_audit_corrections_total"
SPARE_DESCRIPTORS = 24
"""Connections to servers and to Envoy that are kept open, in one or another number."""
SPARE_CONNECTIONS = 8
"""From Envoy to the servers: opened for clients that left before they were used, and kept for the
next requests. No request is on them."""
SPARE_TASKS = 12
SPARE_OBJECTS = 24
"""Ended leases that a server's next observation is still compared with."""
SPARE_MIB = 64
KEPT = "cluster.llama.upstream_cx_active"
OF_ENVOY = frozenset(
    {
        "http.coxswain.downstream_rq_active",
        "http.coxswain.downstream_cx_active",
        "cluster.llama.upstream_rq_active",
        KEPT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What the picker's process uses."""

    descriptors: int
    resident_mib: float
    tasks: Counter[str]


async def footprint(stage: Stage) -> Footprint:
    pid = await stage.core_pid()
    return Footprint(
        descriptors=descriptors(pid),
        resident_mib=resident_mib(pid),
        tasks=Counter(
            {name: n for name, n in (await stage.census()).items() if name.startswith(TASK)}
        ),
    )


async def calm_down(stage: Stage, before: Footprint | None) -> list[Leftover]:
    """Wait until nothing is left, for `CALM_S` at most; what is left then. `before` is what the
    picker used before the load, with the whole fleet; without it, sizes are not compared."""
    give_up_at = time.monotonic() + CALM_S
    while left := await _left(stage):
        if time.monotonic() > give_up_at:
            break
        await asyncio.sleep(POLL_S)
    corrections = await stage.metric(CORRECTIONS)
    if corrections != 0:
        left.append(Leftover(what=CORRECTIONS, value=corrections))
    if before is not None:
        left += _grown(before, await footprint(stage))
    return left


async def _left(stage: Stage) -> list[Leftover]:
    numbers = open_books(await stage.status())
    for server in stage.servers:
        if server.child is not None and server.child.is_running:
            try:
                numbers[f"busy slots of {server.name}"] = await stage.busy_slots(server)
            except (httpx.HTTPError, ValueError, TypeError):
                numbers[f"unanswered questions of {server.name}"] = 1
    numbers |= {
        f"envoy {name}": max(0, value - SPARE_CONNECTIONS) if name == KEPT else value
        for name, value in (await stage.envoy_stats()).items()
        if name in OF_ENVOY
    }
    numbers |= {f"requests at {one.name}'s front": one.front.open_requests for one in stage.servers}
    if not any(numbers.values()):
        census = await stage.census()
        for name, count in census.items():
            if not name.startswith(TASK) and count > SPARE_OBJECTS:
                numbers[f"objects {name}"] = count
    return [Leftover(what=what, value=value) for what, value in numbers.items() if value]


def _grown(before: Footprint, after: Footprint) -> list[Leftover]:
    left = []
    if after.descriptors > before.descriptors + SPARE_DESCRIPTORS:
        text = f"{after.descriptors}, {before.descriptors} before"
        left.append(Leftover(what="descriptors of the picker", value=text))
    if after.tasks.total() > before.tasks.total() + SPARE_TASKS:
        more = dict(after.tasks - before.tasks)
        left.append(Leftover(what="more tasks of the picker", value=more))
    if after.resident_mib > before.resident_mib + SPARE_MIB:
        text = f"{after.resident_mib:.0f} MiB, {before.resident_mib:.0f} before"
        left.append(Leftover(what="memory of the picker", value=text))
    return left


def descriptors(pid: int) -> int:
    """How many files and sockets the process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"process {pid} reports no VmRSS")
