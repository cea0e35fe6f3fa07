"""Three models with memory for one: the same requests through three ways to the models.

Coxswain with a keeper, Coxswain over llama.cpp's router, and that router alone. llama-swap is not
here: the Go module proxy does not serve its module. Its order (first come, first served) is in
`make bench BENCH=simulated-swaps`.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

import grpc
import httpx

from bench import load
from bench.result import Row, Say, Section, at_most
from extproc.demo.port import free_ports
from extproc.demo.process import Children, until
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.kept import kept
from tests.e2e.routed import routed, router_command, write_models
from tests.e2e.stack import CHAT, Stack, chat

TRACE_S = 40.0
PER_S = 1.2
BUSY_S = 20.0
LATER_S = 3.0
MAX_WAIT_S = 5.0
LONG_S = 20.0
"""An answer of about this time; the router kills one after ten seconds."""
MOST_TOKENS = 7000
TRIED_TOKENS = 40
POLL_S = 0.1
WEIGHTS = {"small": 6, "medium": 3, "large": 2}
SLOW = "huge"
MODELS = [*WEIGHTS, SLOW]
LENGTHS = (1, 20, 80)
SEED = 3
TIMEOUT_S = 600.0
SETTINGS = {"swap": {"max_wait_s": MAX_WAIT_S}, "queue": {"timeout_s": TIMEOUT_S}}
ROUTER = "llama.cpp's router alone"


class Job(NamedTuple):
    """A request of the trace, `at` seconds after its beginning."""

    at: float
    model: str
    tokens: int


@dataclass
class Way:
    """One way to the models. `loaded` says which are loaded now, `unload` unloads one."""

    name: str
    url: str
    client: httpx.AsyncClient
    loaded: Callable[[], Awaitable[set[str]]]
    unload: Callable[[str], Awaitable[None]]
    waits_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    loads: int = 0

    async def ask(self, model: str, tokens: int) -> str:
        """What was wrong with the answer, empty if it was whole; notes the wait for its start."""
        body = {**chat(tokens, stream=True), "model": model}
        began = time.monotonic()
        problem = "cut off"
        try:
            async with self.client.stream("POST", self.url, json=body) as answer:
                self.waits_s.append(time.monotonic() - began)
                if answer.status_code != httpx.codes.OK:
                    problem = f"status {answer.status_code}"
                lines = [line async for line in answer.aiter_lines() if line]
                if lines and lines[-1] == "data: [DONE]":
                    problem = _problem(lines, model, tokens)
        except httpx.TransportError as error:
            problem = type(error).__name__
        if problem:
            self.problems.append(problem)
        return problem

    async def count_loads(self) -> None:
        """Until it is cancelled: how often a model has been loaded."""
        before: set[str] = set()
        while True:
            with suppress(httpx.TransportError, grpc.aio.AioRpcError):
                now = await self.loaded()
                self.loads += len(now - before)
                before = now
            await asyncio.sleep(POLL_S)


def _problem(lines: list[str], model: str, tokens: int) -> str:
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    if any(chunk.get("model") != model for chunk in chunks):
        return "another model"
    usage: dict[str, Any] = chunks[-1].get("timings", {})
    return "" if usage.get("predicted_n") == tokens else "too short"


def trace(seconds: float) -> list[Job]:
    """The same for each way: arrivals at random, most for one model."""
    random = Random(SEED)
    jobs: list[Job] = []
    at = random.expovariate(PER_S)
    while at < seconds:
        (model,) = random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        jobs.append(Job(at, model, random.choice(LENGTHS)))
        at += random.expovariate(PER_S)
    return jobs


async def measure(say: Say) -> Section:
    """The trace, the wait of a second model, and an unload during an answer."""
    rows: list[Row] = []
    for make in (with_keeper, over_router, router_alone):
        with tempfile.TemporaryDirectory() as folder:
            async with make(Path(folder)) as way:
                rows += await _measure(way, say)
    return Section(
        title="Swaps of models over real llama-servers",
        method=f"three models with memory for one, {PER_S:g} requests a second for "
        f"{TRACE_S * load.PACE:g} s, the same for each way; waits are those for the first token. "
        f"A second model: two clients keep one busy for {BUSY_S * load.PACE:g} s, and after "
        f"{LATER_S:g} s one asks for another. swap.max_wait_s is {MAX_WAIT_S:g}. An unload: an "
        "operator unloads a model that generates",
        rows=tuple(rows),
    )


async def _measure(way: Way, say: Say) -> list[Row]:
    is_ours = way.name != ROUTER
    say(f"live swaps, {way.name}: the trace")
    counting = asyncio.create_task(way.count_loads())
    await _play(way, trace(TRACE_S * load.PACE))
    counting.cancel()
    waits = sorted(way.waits_s)
    late = waits[int(0.95 * (len(waits) - 1))]
    rows = [
        Row(
            what=f"{way.name}: waits",
            value=f"{len(waits)} answers, mean {fmean(waits):.1f} s, p95 {late:.1f} s, "
            f"longest {waits[-1]:.1f} s",
        ),
        Row(what=f"{way.name}: loads", value=str(way.loads)),
    ]
    say(f"live swaps, {way.name}: a second model")
    second_s = await _second(way)
    rows.append(Row(what=f"{way.name}: wait of a second model", value=f"{second_s:.1f} s"))
    what = f"{way.name}: broken answers"
    broken = len(way.problems)
    rows.append(
        at_most(what, broken, 0) if is_ours else Row(what=what, value=_counted(way.problems))
    )
    say(f"live swaps, {way.name}: an unload")
    problem = await _unloaded(way)
    rows.append(
        Row(
            what=f"{way.name}: an answer during an unload",
            value=problem or "whole",
            target="whole" if is_ours else "",
            is_met=not problem if is_ours else None,
        )
    )
    return rows


def _counted(problems: list[str]) -> str:
    kinds = ", ".join(f"{problems.count(kind)} {kind}" for kind in sorted(set(problems)))
    return f"{len(problems)} ({kinds})" if problems else "0"


async def _play(way: Way, jobs: list[Job]) -> None:
    async def send(job: Job) -> None:
        await asyncio.sleep(job.at)
        await way.ask(job.model, job.tokens)

    await asyncio.gather(*map(send, jobs))


async def _second(way: Way) -> float:
    """How long the first request for another model waits."""
    until_s = time.monotonic() + BUSY_S * load.PACE

    async def busy() -> None:
        while time.monotonic() < until_s:
            await way.ask("medium", 100)

    async def later() -> float:
        await asyncio.sleep(LATER_S)
        began = time.monotonic()
        await way.ask("small", 1)
        return time.monotonic() - began

    waited_s, *_ = await asyncio.gather(later(), busy(), busy())
    return waited_s


async def _unloaded(way: Way) -> str:
    """What an unload does to the answer of a model that generates."""
    await way.ask(SLOW, 1)
    began = time.monotonic()
    await way.ask(SLOW, TRIED_TOKENS)
    token_s = (time.monotonic() - began) / TRIED_TOKENS
    tokens = min(MOST_TOKENS, int(LONG_S / token_s))
    asking = asyncio.create_task(way.ask(SLOW, tokens))
    await asyncio.sleep(1.0)
    await way.unload(SLOW)
    return await asking


@asynccontextmanager
async def router_alone(folder: Path) -> AsyncIterator[Way]:
    """llama-server in router mode, for one model at a time, which it loads by itself."""
    models = write_models(folder, MODELS)
    (port,) = free_ports(1)
    base = f"http://127.0.0.1:{port}"
    async with Children(folder) as children, _client() as client:
        child = await children.start("router", router_command(port, models, autoloads=True))

        async def is_ready() -> bool:
            with suppress(httpx.TransportError):
                return (await client.get(f"{base}/health")).status_code == httpx.codes.OK
            return False

        async def loaded() -> set[str]:
            listed = (await client.get(f"{base}/v1/models")).json()["data"]
            return {one["id"] for one in listed if one["status"]["value"] == "loaded"}

        async def unload(model: str) -> None:
            await client.post(f"{base}/models/unload", json={"model": model})

        await child.wait_ready(is_ready, timeout_s=60)
        yield Way(ROUTER, f"{base}{CHAT}", client, loaded, unload)


@asynccontextmanager
async def over_router(folder: Path) -> AsyncIterator[Way]:
    """Coxswain before a router that leaves its models to it."""
    async with routed(folder, MODELS, SETTINGS) as fleet, _client() as client:
        yield _ours("Coxswain over the router", fleet.stack, client)


@asynccontextmanager
async def with_keeper(folder: Path) -> AsyncIterator[Way]:
    """A keeper of one machine, the picker and Envoy."""
    models: dict[str, dict[str, Any]] = {name: {} for name in MODELS}
    async with kept(folder, models, 10, SETTINGS) as fleet, _client() as client:

        async def is_known() -> bool:
            return bool(await fleet.models())

        await until(is_known)
        yield _ours("Coxswain with a keeper", fleet.stack, client)


def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(
        timeout=TIMEOUT_S, limits=httpx.Limits(max_connections=None), trust_env=False
    )


def _ours(name: str, stack: Stack, client: httpx.AsyncClient) -> Way:
    target = f"127.0.0.1:{stack.admin_port}"

    async def loaded() -> set[str]:
        async with grpc.aio.insecure_channel(target) as channel:
            answer = await AdminStub(channel).ListModels(pb.ListModelsRequest())
        return {one.name for one in answer.models if one.state == "loaded"}

    async def unload(model: str) -> None:
        async with grpc.aio.insecure_channel(target) as channel:
            await AdminStub(channel).UnloadModel(pb.UnloadModelRequest(model=model))

    return Way(name, stack.url(CHAT), client, loaded, unload)
