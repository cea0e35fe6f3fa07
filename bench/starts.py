"""How long a start takes: a picker until it is ready with a server, and the shortest command."""

import asyncio
import sys
import time
from functools import partial
from statistics import median

import httpx

from bench import load
from bench.result import Row, Say, Section, at_most
from bench.rig import QUIET, READY_S, Rig
from extproc.demo.port import LOOPBACK, free_ports
from extproc.demo.process import until

ROUNDS = 15
POLL_S = 0.005
COMMAND = (sys.executable, "-m", "extproc.cli")


async def measure(say: Say) -> Section:
    """Start each several times, in turns."""
    rounds = max(3, round(ROUNDS * load.PACE))
    ready_s, version_s = [], []
    async with Rig() as rig:
        endpoints = await rig.start_stand_ins(1, slots=4)
        for number in range(rounds):
            say(f"starts: round {number + 1} of {rounds}")
            ready_s.append(await _until_ready(rig, endpoints))
            version_s.append(await _version())
    return Section(
        title="Starts",
        method=f"Medians of {rounds} starts in turns, files in the system's cache; a picker is "
        f"ready when `/readyz` says so, with one server, asked every {POLL_S * 1000:g} ms",
        rows=(
            _at_most("coxswain serve, until it is ready", ready_s, 0.5),
            _at_most("coxswain --version", version_s, 0.1),
        ),
    )


def _at_most(what: str, seconds: list[float], bound_s: float) -> Row:
    return at_most(what, median(seconds), bound_s, " s")


async def _until_ready(rig: Rig, endpoints: list[int]) -> float:
    [http] = free_ports(1)
    config, port = rig.configure_picker(endpoints, QUIET, http=http)
    began = time.monotonic()
    picker = await rig.start(f"picker-{port}", [*COMMAND, "serve", "--config", config])
    async with (
        httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{http}") as client,
        asyncio.timeout(READY_S),
    ):
        await until(partial(_is_ready, client), every_s=POLL_S)
    took_s = time.monotonic() - began
    await picker.stop()
    return took_s


async def _is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).is_success
    except httpx.TransportError:
        return False


async def _version() -> float:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--version", stdout=asyncio.subprocess.DEVNULL
    )
    await process.wait()
    return time.monotonic() - began
