"""What a batch costs the requests beside it: over real Envoy, the picker and simulated servers, the
same requests at random times with and without a batch of many lines, in turns.

The lengths of answers are spread exponentially; each server's token takes its time, so a request
takes as long with the batch as without it, but for its wait.
"""

import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import aiohttp

from bench import load
from bench.result import Row, Say, Section, at_least, at_most, measured
from bench.rig import Rig
from extproc.demo.port import LOOPBACK, free_ports
from extproc.demo.process import Child

SERVERS, SLOTS = 8, 8
TOKENS_PER_S = 20
LOAD = 0.6
ANSWER_TOKENS = 80
LINE_TOKENS = 40
LINES = 10_000
ROUNDS = 4
BUSY_S = 60.0
WARM_S = 15.0
"""Before each measurement: as long as most answers take."""
SAMPLE_S = 0.5
SEED = 7
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One measurement: the seconds of each request and of its wait, and the share of busy slots."""

    took_s: list[float]
    waits_s: list[float]
    busy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Where the parts are."""

    envoy: int
    servers: list[int]
    session: aiohttp.ClientSession


async def measure(say: Say) -> Section:
    """Rounds in pairs, of the same requests."""
    pairs: list[tuple[Round, Round]] = []
    async with Rig() as rig, aiohttp.ClientSession() as session:
        servers = free_ports(SERVERS)
        for port in servers:
            command = (sys.executable, "-m", "extproc.demo.simulator", "--port", str(port))
            options = ("--slots", str(SLOTS), "--tokens-per-second", str(TOKENS_PER_S))
            await rig.start_listening(f"server-{port}", [*command, *options], port)
        admin, batches = free_ports(2)
        settings = {
            "log": {"level": "warning"},
            "objectives": {"batch": {"criticality": "sheddable"}},
        }
        _, grpc = await rig.start_picker(servers, settings, admin)
        _, envoy = await rig.start_envoy(grpc)
        fleet = Fleet(envoy=envoy, servers=servers, session=session)
        child = await _start_batches(rig, admin, envoy, batches)
        batch = await _submit(session, batches)
        await child.stop()
        done = 0
        for number in range(ROUNDS):
            say(f"batches: round {number + 1} of {ROUNDS}, without the batch")
            without = await _round(fleet, SEED + number)
            say(f"batches: round {number + 1} of {ROUNDS}, with it; {done} lines are done")
            child = await _start_batches(rig, admin, envoy, batches)
            beside = await _round(fleet, SEED + number)
            done = await _done(session, batches, batch)
            await child.stop()
            pairs.append((without, beside))
    return _section(pairs, done)


def _section(pairs: list[tuple[Round, Round]], done: int) -> Section:
    def ratio(share: float) -> float:
        return median(
            _quantile(beside.took_s, share) / _quantile(alone.took_s, share)
            for alone, beside in pairs
        )

    def wait_ms(rounds: list[Round], share: float) -> float:
        return 1000 * _quantile([one for each in rounds for one in each.waits_s], share)

    alone, beside = map(list, zip(*pairs, strict=True))
    return Section(
        title="Batches",
        method=f"{SERVERS} servers of {SLOTS} slots, {TOKENS_PER_S} tokens a second in each; "
        f"requests at {LOAD:g} load with {ANSWER_TOKENS} tokens on average, lines with "
        f"{LINE_TOKENS}, of a batch of {LINES}; {ROUNDS} pairs of "
        f"{BUSY_S * load.PACE:g} s with the same requests, medians",
        rows=(
            at_most("p99 of requests, beside the batch to without it", ratio(0.99), 1.05),
            measured("the same of the median", ratio(0.5)),
            at_least("slots busy, beside the batch", median(one.busy for one in beside), 0.95, 3),
            measured("the same without it", median(one.busy for one in alone), digits=3),
            measured("mean wait, beside the batch", 1000 * _mean_wait_s(beside), " ms", 1),
            measured("the same without it", 1000 * _mean_wait_s(alone), " ms", 1),
            measured("p99 of waits, beside the batch", wait_ms(beside, 0.99), " ms", 1),
            measured("the same without it", wait_ms(alone, 0.99), " ms", 1),
            Row(what="requests measured in each way", value=str(sum(len(r.took_s) for r in alone))),
            Row(what="lines done", value=str(done)),
        ),
    )


def _mean_wait_s(rounds: list[Round]) -> float:
    return fmean(one for each in rounds for one in each.waits_s)


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


async def _start_batches(rig: Rig, admin: int, envoy: int, port: int) -> Child:
    command: list[str | Path] = [
        *(sys.executable, "-m", "extproc.cli", "batch", "run"),
        *("--store", rig.folder / "batches.db", "--picker", f"{LOOPBACK}:{admin}"),
        *("--url", f"http://{LOOPBACK}:{envoy}", "--listen", f"{LOOPBACK}:{port}"),
    ]
    child, _ = await rig.start_listening(f"batches-{time.monotonic_ns()}", command, port)
    return child


async def _submit(session: aiohttp.ClientSession, port: int) -> str:
    source = random.Random(SEED)
    lines = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": CHAT,
            "body": _body(f"line {number}", LINE_TOKENS, source),
        }
        for number in range(LINES)
    ]
    form = aiohttp.FormData({"purpose": "batch"})
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    form.add_field("file", content, filename="in.jsonl")
    url = f"http://{LOOPBACK}:{port}/v1"
    async with session.post(f"{url}/files", data=form) as answer:
        file = (await answer.json())["id"]
    asked = {"input_file_id": file, "endpoint": CHAT, "completion_window": "7d"}
    async with session.post(f"{url}/batches", json=asked) as answer:
        return str((await answer.json())["id"])


async def _done(session: aiohttp.ClientSession, port: int, batch: str) -> int:
    async with session.get(f"http://{LOOPBACK}:{port}/v1/batches/{batch}") as answer:
        return int((await answer.json())["request_counts"]["completed"])


def _body(content: str, mean_tokens: int, source: random.Random) -> dict[str, Any]:
    tokens = max(1, round(source.expovariate(1 / mean_tokens)))
    return {"messages": [{"role": "user", "content": content}], "max_tokens": tokens}


async def _round(fleet: Fleet, seed: int) -> Round:
    """Requests at random times; those of the first seconds are not measured."""
    source = random.Random(seed)
    rate = LOAD * SERVERS * SLOTS * TOKENS_PER_S / ANSWER_TOKENS
    took_s, waits_s, busy = [], [], []
    seconds = BUSY_S * load.PACE

    async def ask(body: dict[str, Any], *, counts: bool) -> None:
        began = time.perf_counter()
        async with fleet.session.post(
            f"http://{LOOPBACK}:{fleet.envoy}{CHAT}", json=body
        ) as answer:
            await answer.read()
            assert answer.status == 200, answer.status
            if counts:
                took_s.append(time.perf_counter() - began)
                waits_s.append(float(answer.headers["x-coxswain-queue-ms"]) / 1000)

    async def sample() -> None:
        while True:
            found = await asyncio.gather(*(_busy(fleet, port) for port in fleet.servers))
            busy.append(sum(found) / (SERVERS * SLOTS))
            await asyncio.sleep(SAMPLE_S)

    sampling = None
    begin = at = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        while (at := at + source.expovariate(rate)) < begin + WARM_S + seconds:
            await asyncio.sleep(max(0.0, at - time.perf_counter()))
            is_warm = at > begin + WARM_S
            if is_warm and sampling is None:
                sampling = asyncio.create_task(sample())
            body = _body(f"request {source.random()}", ANSWER_TOKENS, source)
            group.create_task(ask(body, counts=is_warm))
        assert sampling is not None
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
    return Round(took_s=took_s, waits_s=waits_s, busy=fmean(busy))


async def _busy(fleet: Fleet, port: int) -> int:
    async with fleet.session.get(f"http://{LOOPBACK}:{port}/slots") as answer:
        return sum(slot["is_processing"] for slot in await answer.json())
