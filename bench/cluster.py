"""What fronts and a core cost, beside one process; how long a lost core is missed; and how often
members ask the engine."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import httpx

from bench import load, rig
from bench.process import cpu_seconds
from bench.result import Row, Section, at_least, at_most
from extproc.demo.port import LOOPBACK, free_ports
from extproc.demo.process import Children

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15
ROUND_S = 1.5
CONNECTIONS = 32
LOSSES = 5
"""How often a core is lost in each way."""
LOSS_S = 4.0
CALLERS = 4
ENGINE_S = 10.0
READY_S = 60.0
MEMBERS: Final = 10
"""The size of the cluster that the bound of the engine's operations is for."""
QUIET = {"log": {"level": "warning"}, "routing": {"read_body": "never"}}
WAYS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP, "ended": signal.SIGTERM}
BOUNDS_S = {"killed": 0.3, "frozen": 1.2, "ended": 0.1}
ENGINE = shutil.which("valkey-server") or shutil.which("redis-server")


@dataclass(kw_only=True)
class Form:
    """A picker with its Envoy, and what was measured of it. `fronts` is 0 for one process."""

    name: str
    fronts: int
    pid: int
    port: int
    pages: int
    busy: list[load.Load] = field(default_factory=list)
    calm: list[load.Load] = field(default_factory=list)
    core_us: list[float] = field(default_factory=list)
    front_us: list[float] = field(default_factory=list)

    async def roles(self) -> dict[int, str]:
        """Its processes that serve."""
        if not self.fronts:
            return {self.pid: "core"}
        async with httpx.AsyncClient(timeout=5) as client:
            answer = await client.get(f"http://{LOOPBACK}:{self.pages}/status")
        return {one["pid"]: one["role"] for one in answer.json()["processes"]["members"]}

    async def core(self) -> int:
        """The core, when all processes are there."""
        async with asyncio.timeout(READY_S):
            while True:
                try:
                    roles = await self.roles()
                except (httpx.HTTPError, ValueError, TypeError):
                    roles = {}
                found = sorted(roles.values())
                if found == ["core", *["front"] * self.fronts, "spare"]:
                    return next(pid for pid, role in roles.items() if role == "core")
                await asyncio.sleep(0.05)


async def measure(say: Callable[[str], None]) -> Section:
    """One process, one front and two, each before an Envoy of its own, in turn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Children(folder) as children:
            server = (await rig.start_stand_ins(children, folder, 1, 256))[0]
            forms = [
                await _start(children, folder, server, label, fronts)
                for label, fronts in (("one process", 0), ("1 front", 1), ("2 fronts", 2))
            ]
            for number in range(ROUNDS):
                for form in forms:
                    say(f"cluster: round {number + 1} of {ROUNDS}, {form.name}")
                    await _round(form)
            pauses, failures = await _losses(forms[2], say)
            asked = await _engine(folder, server, say) if ENGINE is not None else None
    one, *fronts = forms
    shown = [row for form in forms for row in _rows(form, one)]
    core_us = median(us for form in fronts for us in form.core_us)
    failures += sum(run.failures for form in forms for run in (*form.busy, *form.calm))
    return Section(
        title="Fronts and a cluster",
        method=f"{CONNECTIONS} connections for the rate, one for the latency; medians of {ROUNDS} "
        f"rounds of {ROUND_S:g} s for each form in turn, through Envoy with one worker, on "
        f"{os.cpu_count()} cores; no bodies are read. A pause is the longest that one of "
        f"{CALLERS} callers, one request after the other, waits while the core is lost; medians "
        f"of {LOSSES}. The engine counts its operations, with one member and with two",
        rows=(
            *shown,
            at_most("CPU time per exchange, core", core_us, 40, " us"),
            at_least("exchanges/s that one core carries, by its CPU time", 1e6 / core_us, 20_000),
            *(
                at_most(f"pause, core {way}", median(found), BOUNDS_S[way], " s")
                for way, found in pauses.items()
            ),
            *([] if asked is None else [at_most(_ENGINE, asked, 60)]),
            Row(what="failed requests", value=str(failures), target="0", is_met=failures == 0),
        ),
    )


_ENGINE: Final = f"operations/s at the engine of {MEMBERS} members"


async def _start(children: Children, folder: Path, server: int, name: str, fronts: int) -> Form:
    [pages] = free_ports(1)
    settings: dict[str, Any] = {**QUIET, **({"fronts": fronts} if fronts else {})}
    picker, port = await rig.start_picker(children, folder, [server], settings, http=pages)
    _, envoy = await rig.start_envoy_process(
        children, folder, port, has_fronts=bool(fronts), message_timeout_s=60.0 if fronts else 1.0
    )
    form = Form(name=name, fronts=fronts, pid=picker.pid, port=envoy, pages=pages)
    if fronts:
        await form.core()
    await load.run(envoy, CONNECTIONS, 1.0)
    return form


async def _round(form: Form) -> None:
    roles = await form.roles()
    before = {pid: cpu_seconds(pid) for pid in roles}
    run = await load.run(form.port, CONNECTIONS, ROUND_S)
    used_us = {pid: 1e6 * (cpu_seconds(pid) - before[pid]) / run.requests for pid in roles}
    form.busy.append(run)
    form.core_us.append(sum(us for pid, us in used_us.items() if roles[pid] == "core"))
    form.front_us.append(sum(us for pid, us in used_us.items() if roles[pid] == "front"))
    form.calm.append(await load.run(form.port, 1, ROUND_S))


def _rows(form: Form, one: Form) -> list[Row]:
    rate = f"{median(run.rate for run in form.busy):.0f}"
    rows = [Row(what=f"exchanges/s, {form.name}", value=rate)]
    if form is one:
        used = f"{median(form.core_us):.0f} us"
        return [*rows, Row(what="CPU time per exchange, one process", value=used)]
    pairs = list(zip(form.busy, one.busy, strict=True))
    ratio = median(ours.rate / theirs.rate for ours, theirs in pairs)
    has_cores = (os.cpu_count() or 1) >= form.fronts + 3  # Envoy and the load need some, too
    what = f"rate, {form.name} to one process"
    front = median(ours / theirs for ours, theirs in zip(form.front_us, one.core_us, strict=True))
    added_ms = median(
        ours.p50_ms - theirs.p50_ms for ours, theirs in zip(form.calm, one.calm, strict=True)
    )
    return [
        *rows,
        at_least(what, ratio, 0.8 * form.fronts)
        if has_cores
        else Row(what=f"{what}, with too few cores for it", value=f"{ratio:.2f}"),
        at_most(f"CPU time of the fronts to that of one process, {form.name}", front, 1.15),
        at_most(f"added median, {form.name} to one process", added_ms, 0.3, " ms"),
    ]


async def _losses(form: Form, say: Callable[[str], None]) -> tuple[dict[str, list[float]], int]:
    """The longest waits in seconds, by how the core is lost; and failed requests."""
    pauses: dict[str, list[float]] = {way: [] for way in WAYS}
    failures = 0
    for number in range(LOSSES):
        for way, how in WAYS.items():
            say(f"cluster: core {way}, {number + 1} of {LOSSES}")
            core = await form.core()
            callers = [asyncio.create_task(_call(form.port, LOSS_S)) for _ in range(CALLERS)]
            await asyncio.sleep(LOSS_S / 4)
            os.kill(core, how)
            found = await asyncio.gather(*callers)
            pauses[way].append(max(longest for longest, _ in found))
            failures += sum(failed for _, failed in found)
    return pauses, failures


async def _call(port: int, seconds: float) -> tuple[float, int]:
    """The longest wait of requests one after the other, and how many failed."""
    body = load.chat_body(0)
    request = load.head(load.PATH, body) + body
    longest, failed = 0.0, 0
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        writer.write(request)
        answer = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(load.content_length(answer))
        longest = max(longest, time.perf_counter() - began)
        failed += not answer.startswith(b"HTTP/1.1 200")
        await asyncio.sleep(0.005)
    writer.close()
    return longest, failed


async def _engine(folder: Path, server: int, say: Callable[[str], None]) -> float:
    """Operations a second of a leader and nine that stand by: from those of one member and of
    two."""
    assert ENGINE is not None
    async with Children(folder) as children:
        [port] = free_ports(1)
        quiet = ("--save", "", "--appendonly", "no")
        engine = await children.start("engine", [ENGINE, "--port", str(port), *quiet])
        await rig.until_listening(engine, port)
        rates: list[float] = []
        for name in ("a", "b"):
            say(f"cluster: the engine's operations, {len(rates) + 1} members")
            [members, pages] = free_ports(2)
            cluster = {
                "name": "bench",
                "valkey": f"redis://{LOOPBACK}:{port}",
                "member": name,
                "advertise": f"{LOOPBACK}:{members}",
            }
            settings = {**QUIET, "fronts": 2, "cluster": cluster}
            await rig.start_picker(children, folder, [server], settings, http=pages)
            await _until_ready(pages)
            before = await _operations(port)
            await asyncio.sleep(ENGINE_S)
            rates.append((await _operations(port) - before) / ENGINE_S)
    alone, both = rates
    return alone + (MEMBERS - 1) * (both - alone)


async def _until_ready(pages: int) -> None:
    async with asyncio.timeout(READY_S), httpx.AsyncClient(timeout=5) as client:
        while True:
            try:
                if (await client.get(f"http://{LOOPBACK}:{pages}/readyz")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.1)


async def _operations(port: int) -> int:
    """How often members have asked the engine: each step is a script."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(b"INFO commandstats\r\n")
    size = int((await reader.readline())[1:])
    text = (await reader.readexactly(size)).decode()
    writer.close()
    return sum(map(int, re.findall(r"cmdstat_eval(?:sha)?:calls=(\d+)", text)))
