"""What must be gone when no request is: asked of the picker, of Envoy and of the servers."""

import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass

import httpx

from bench.process import descriptors, resident_bytes
from rigs.chaos.launch import TASK
from rigs.chaos.records import Leftover
from rigs.chaos.stage import Stage
from rigs.picker_pages import CORRECTIONS, unsettled, until_none

CALM_S = 60.0
"""A slot whose client left may stay taken for `ledger.draining_cap_s`; what is left so long after
that is left for good."""
SPARE = {"descriptors": 24, "memory": 64}
"""Connections to servers and to Envoy are kept open, in one or another number."""
UNITS = {"descriptors": "", "memory": " MiB"}
SPARE_CONNECTIONS = 8
"""From Envoy to the servers: opened for clients that left before they were used, and kept for the
next requests. No request is on them."""
SPARE_TASKS = 12
SPARE_OBJECTS = 24
"""Ended leases that a server's next observation is still compared with, and the calls of a front
by which Envoys learn of the fleet."""
MIB = 1024 * 1024
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
    """What the pickers' processes use: by what and role, the most that one of this role does."""

    sizes: dict[tuple[str, str], float]
    tasks: Counter[str]


async def footprint(stage: Stage) -> Footprint:
    census = await _census_of_core(stage)
    sizes: defaultdict[tuple[str, str], float] = defaultdict(float)
    for pid, role in (await stage.processes()).items():
        for what, size in (
            ("descriptors", descriptors(pid)),
            ("memory", resident_bytes(pid) / MIB),
        ):
            sizes[what, role] = max(sizes[what, role], size)
    tasks = Counter({name: n for name, n in census.items() if name.startswith(TASK)})
    return Footprint(sizes=sizes, tasks=tasks)


async def _census_of_core(stage: Stage) -> dict[str, int]:
    while True:
        with suppress(ProcessLookupError):  # another one takes over
            return await stage.census(await stage.core_pid())


async def calm_down(stage: Stage, before: Footprint | None) -> list[Leftover]:
    """Wait until nothing is left, for `CALM_S` at most; what is left then. `before` is what the
    picker used before the load, with the whole fleet; without it, sizes are not compared."""
    give_up_at = time.monotonic() + CALM_S
    left = await until_none(lambda: _left(stage), give_up_at)
    if before is not None:
        left += await until_none(lambda: _grown(stage, before), give_up_at)
    corrections = await stage.metric(CORRECTIONS)
    if corrections != 0:
        left.append(Leftover(what=CORRECTIONS, value=corrections))
    return left


async def _left(stage: Stage) -> list[Leftover]:
    numbers = unsettled(await stage.status())
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
        for pid, role in (await stage.processes()).items():
            try:
                census = await stage.census(pid)
            except ProcessLookupError:
                numbers[f"a {role} that is gone"] = 1
                continue
            for name, count in census.items():
                if not name.startswith(TASK) and count > SPARE_OBJECTS:
                    numbers[f"objects {name} of a {role}"] = count
    return [Leftover(what=what, value=value) for what, value in numbers.items() if value]


async def _grown(stage: Stage, before: Footprint) -> list[Leftover]:
    """What is larger than before. Our own questions may be in it, for a moment: connections that
    the core has not closed yet."""
    after = await footprint(stage)
    left = []
    for (what, role), had in before.sizes.items():
        has = after.sizes.get((what, role), 0)
        if has > had + SPARE[what]:
            text = f"{has:.0f}{UNITS[what]}, {had:.0f} before"
            left.append(Leftover(what=f"{what} of a {role}", value=text))
    if after.tasks.total() > before.tasks.total() + SPARE_TASKS:
        more = dict(after.tasks - before.tasks)
        left.append(Leftover(what="more tasks of the core", value=more))
    return left
