"""What fronts and a core cost, beside one process; how long a lost core is missed; and how often
members ask the engine."""

import asyncio
import os
import re
import shutil
import signal
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

import httpx

from bench import load
from bench.core_at_load import FRONTS, SLOTS, measure_core
from bench.result import Row, Say, Section, at_least, at_most, none_of
from bench.rig import WITHOUT_BODIES, Rig, until_listening
from bench.rounds import CONNECTIONS, Contender, failed, take_turns
from extproc.demo.port import LOOPBACK, free_ports
from extproc.demo.process import Child

ROUNDS = 15
ROUND_S = 1.5
LOSSES = 5
"""How often a core is lost in each way."""
LOSS_S = 4.0
CALLERS = 4
PAUSE_S = 0.005
"""After each of their requests: they leave the cores to the takeover."""
ENGINE_S = 10.0
READY_S = 60.0
MEMBERS: Final = 10
"""The size of the cluster that the bound of the engine's operations is for."""
WAYS = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP, "ended": signal.SIGTERM}
BOUNDS_S = {"killed": 0.3, "frozen": 1.2, "ended": 0.1}
ENGINE = shutil.which("valkey-server") or shutil.which("redis-server")


@dataclass(kw_only=True)
class Form(Contender):
    """A picker with its Envoy. `fronts` is 0 for one process."""

    fronts: int
    picker: Child
    pages: int

    async def roles(self) -> dict[str, list[int]]:
        """Its processes that serve, when all are there."""
        if not self.fronts:
            return {"core": [self.picker.pid]}
        roles: dict[str, list[int]] = {}

        async def are_there(client: httpx.AsyncClient) -> bool:
            roles.clear()
            try:
                processes = (await client.get("/status")).json()["processes"]
                for one in processes["members"]:
                    roles.setdefault(one["role"], []).append(one["pid"])
            except (httpx.HTTPError, ValueError, TypeError):
                return False
            found = {role: len(pids) for role, pids in roles.items()}
            return found == {"core": 1, "front": self.fronts, "spare": 1}

        async with _client(self.pages) as client:
            await self.picker.wait_ready(partial(are_there, client), timeout_s=READY_S)
        return roles


async def measure(say: Say) -> Section:
    """One process, one front and two, each before an Envoy of its own, in turn."""
    async with Rig() as rig:
        (server,) = await rig.start_stand_ins(1, SLOTS)
        forms = [
            await _start(rig, server, label, fronts)
            for label, fronts in (("one process", 0), ("1 front", 1), ("2 fronts", 2))
        ]
        await take_turns("cluster", forms, ROUNDS, ROUND_S, say, has_calm=True)
        pauses, failures = await _losses(forms[2], say)
        busy = await measure_core(rig, server, say)
        engine = [] if ENGINE is None else [await _engine(server, ENGINE, say)]
    one, *fronts = forms
    shown = [row for form in forms for row in _rows(form, one)]
    core_us = median(us for form in fronts for us in form.used_us["core"])
    failures += failed(forms)
    return Section(
        title="Fronts and a cluster",
        method=f"{CONNECTIONS} connections for the rate, one for the latency; medians of {ROUNDS} "
        f"rounds of {ROUND_S:g} s for each form in turn, through Envoy with one worker, on "
        f"{os.cpu_count()} cores; no bodies are read. The core that is kept busy gets ready-made "
        f"requests, {SLOTS} at a time, as from {FRONTS} fronts. A pause is the longest that one of "
        f"{CALLERS} callers, one request after the other, waits while the core is lost; medians "
        f"of {LOSSES}. The engine counts its operations, with one member and with two",
        rows=(
            *shown,
            Row(what="CPU time per exchange, core behind fronts", value=f"{core_us:.0f} us"),
            *busy,
            *(
                at_most(f"pause, core {way}", median(found), BOUNDS_S[way], " s")
                for way, found in pauses.items()
            ),
            *engine,
            none_of("failed requests", failures),
        ),
    )


async def _start(rig: Rig, server: int, name: str, fronts: int) -> Form:
    [pages] = free_ports(1)
    picker, port = await rig.start_picker(
        [server], {**WITHOUT_BODIES, "fronts": fronts}, http=pages
    )
    _, envoy = await rig.start_envoy(
        port, has_fronts=bool(fronts), message_timeout_s=60.0 if fronts else 1.0
    )
    form = Form(name=name, fronts=fronts, picker=picker, port=envoy, pages=pages)
    form.parts = await form.roles()
    return form


def _rows(form: Form, one: Form) -> list[Row]:
    rows = [Row(what=f"exchanges/s, {form.name}", value=f"{form.rate:.0f}")]
    if form is one:
        used = f"{form.cost_us('core'):.0f} us"
        return [*rows, Row(what="CPU time per exchange, one process", value=used)]
    ratio = form.rate_to(one)
    has_cores = (os.cpu_count() or 1) >= form.fronts + 3  # Envoy and the load need some, too
    what = f"rate, {form.name} to one process"
    front = median(
        ours / theirs
        for ours, theirs in zip(form.used_us["front"], one.used_us["core"], strict=True)
    )
    added_ms = form.added_ms(one, lambda run: run.p50_ms)
    return [
        *rows,
        at_least(what, ratio, 0.8 * form.fronts)
        if has_cores
        else Row(what=f"{what}, with too few cores for it", value=f"{ratio:.2f}"),
        at_most(f"CPU time of the fronts to that of one process, {form.name}", front, 1.15),
        at_most(f"added median, {form.name} to one process", added_ms, 0.3, " ms"),
    ]


async def _losses(form: Form, say: Say) -> tuple[dict[str, list[float]], int]:
    """The longest waits in seconds, by how the core is lost; and failed requests."""
    pauses: dict[str, list[float]] = {way: [] for way in WAYS}
    failures = 0
    for number in range(LOSSES):
        for way, how in WAYS.items():
            say(f"cluster: core {way}, {number + 1} of {LOSSES}")
            [core] = (await form.roles())["core"]
            calls = asyncio.create_task(load.generate(form.port, CALLERS, LOSS_S, pause_s=PAUSE_S))
            await asyncio.sleep(LOSS_S / 4)
            os.kill(core, how)
            run = await calls
            pauses[way].append(run.longest_ms / 1000)
            failures += run.failures
    return pauses, failures


async def _engine(server: int, program: str, say: Say) -> Row:
    """The operations of a leader and nine that stand by: from those of one member and of two."""
    async with Rig() as rig:
        [port] = free_ports(1)
        quiet = ("--save", "", "--appendonly", "no")
        engine = await rig.start("engine", [program, "--port", str(port), *quiet])
        await until_listening(engine, port)
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
            settings = {**WITHOUT_BODIES, "fronts": 2, "cluster": cluster}
            picker, _ = await rig.start_picker([server], settings, http=pages)
            async with _client(pages) as client:
                await picker.wait_ready(partial(_is_ready, client), timeout_s=READY_S)
            before = await _operations(port)
            await asyncio.sleep(ENGINE_S)
            rates.append((await _operations(port) - before) / ENGINE_S)
    alone, both = rates
    asked = alone + (MEMBERS - 1) * (both - alone)
    return at_most(f"operations/s at the engine of {MEMBERS} members", asked, 60)


async def _is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == 200
    except httpx.HTTPError:
        return False


def _client(port: int) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{port}", timeout=5, trust_env=False)


async def _operations(port: int) -> int:
    """How often members have asked the engine: each step is a script."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(b"INFO commandstats\r\n")
    size = int((await reader.readline())[1:])
    text = (await reader.readexactly(size)).decode()
    writer.close()
    return sum(map(int, re.findall(r"cmdstat_eval(?:sha)?:calls=(\d+)", text)))
