"""How long requests wait over real Envoy: under load beside a perfect queue, and on an idle fleet.

`python -m bench.waits` takes the arguments of `_send_all` as JSON, sends one request after another
at random times and prints a JSON line with what each took. Bounded in time.
The event loop's own clock has whole milliseconds.
"""

import asyncio
import heapq
import json
import random
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import fmean, median

import uvloop

from bench import load
from bench.envoy_tree import pass_over_picker
from bench.process import call
from bench.result import Row, Say, Section, at_most
from bench.rig import Rig

SLOTS = (1, 2, 4)
"""An uneven fleet."""
TIMES_MS = (20, 30, 40, 50, 60, 70, 80, 100, 120, 150, 180, 300)
LOAD = 0.9
BUSY_S = 20.0
IDLE_RATE = 60.0
IDLE_S = 3.0
ROUNDS = 7
SEED = 11

Sent = tuple[float, float, float]
"""When a request was to be sent, what its server took, and what it took in all; seconds."""


async def measure(say: Say) -> Section:
    """One trace through Envoy and Coxswain, and calm rounds with and without the picker."""
    async with Rig() as rig:
        slots_by_port = {}
        for slots in SLOTS:
            (port,) = await rig.start_stand_ins(1, slots, times_ms=TIMES_MS)
            slots_by_port[port] = slots
        servers = [*slots_by_port]
        _, picker = await rig.start_picker(servers)
        _, plain = await rig.start_envoy(picker, edit=pass_over_picker)
        _, ours = await rig.start_envoy(picker)
        haproxy = shutil.which("haproxy")
        other = None
        if haproxy is not None:
            _, other = await rig.start_haproxy(haproxy, slots_by_port)
        pickers = {"ours": ours}
        if shutil.which("go") is not None:
            _, floor = await rig.start_go_picker(servers[-1])
            _, pickers["go"] = await rig.start_envoy(picker, processor_port=floor)
        added = await _added(plain, pickers, say)
        base_s = median(overheads(await send(plain, IDLE_RATE, IDLE_S, TIMES_MS[:1])))
        ratios, means, perfects, others = [], [], [], []
        rate = LOAD * sum(SLOTS) / (fmean(TIMES_MS) / 1000)
        for number in range(ROUNDS):
            say(f"waits: round {number + 1} of {ROUNDS}, {LOAD:.0%} load")
            sent = await send(ours, rate, BUSY_S, TIMES_MS, seed=SEED + number)
            means.append(fmean(overheads(sent)) - base_s)
            perfects.append(fmean(perfect(sent, sum(SLOTS))))
            ratios.append(means[-1] / perfects[-1])
            if other is not None:
                sent = await send(other, rate, BUSY_S, TIMES_MS, seed=SEED + number)
                others.append((fmean(overheads(sent)) - base_s) / perfects[-1])
    return Section(
        title="Waits",
        method=f"{len(SLOTS)} servers of {', '.join(map(str, SLOTS))} slots, requests of "
        f"{TIMES_MS[0]} to {TIMES_MS[-1]} ms at random times, bodies are read; medians of "
        f"{ROUNDS} rounds; the perfect queue serves the same requests in the order of arrival",
        rows=(
            Row(what=f"mean wait at {LOAD:g} load", value=f"{1000 * median(means):.1f} ms"),
            Row(what="of a perfect queue", value=f"{1000 * median(perfects):.1f} ms"),
            at_most("mean wait to a perfect queue's", median(ratios), 1.05),
            *_haproxy(ratios, others),
            at_most(
                f"added median, an idle fleet, {IDLE_RATE:g} requests/s",
                1000 * median(added["ours"]),
                0.8,
                " ms",
            ),
            *_floor(added),
        ),
    )


async def _added(plain: int, pickers: Mapping[str, int], say: Say) -> dict[str, list[float]]:
    """What each picker adds to the median of an Envoy without one on an idle fleet, seconds; the
    rounds alternate."""
    for port in (plain, *pickers.values()):
        await send(port, IDLE_RATE, 1.0, TIMES_MS[:1])
    added: dict[str, list[float]] = {name: [] for name in pickers}
    for number in range(ROUNDS):
        say(f"waits: round {number + 1} of {ROUNDS}, an idle fleet")
        before = median(overheads(await send(plain, IDLE_RATE, IDLE_S, TIMES_MS[:1])))
        for name, port in pickers.items():
            after = median(overheads(await send(port, IDLE_RATE, IDLE_S, TIMES_MS[:1])))
            added[name].append(after - before)
    return added


def _floor(added: Mapping[str, list[float]]) -> tuple[Row, ...]:
    """What a picker in Go that decides nothing adds at the same rate."""
    if "go" not in added:
        return (Row(what="added median, Go no-op", value="Go is not installed"),)
    beside = [ours / floor for ours, floor in zip(added["ours"], added["go"], strict=True)]
    return (
        Row(what="added median, Go no-op", value=f"{1000 * median(added['go']):.2f} ms"),
        Row(what="added median to the Go no-op's", value=f"{median(beside):.2f}"),
    )


def _haproxy(ratios: Sequence[float], others: Sequence[float]) -> tuple[Row, ...]:
    """What HAProxy with limits that were written by hand reaches on the same machine."""
    if not others:
        return (Row(what="HAProxy's", value="not installed"),)
    beside = [ours / theirs for ours, theirs in zip(ratios, others, strict=True)]
    return (
        Row(what="HAProxy's, with limits by hand", value=f"{median(others):.2f}"),
        Row(what="mean wait to HAProxy's", value=f"{median(beside):.2f}"),
    )


def overheads(sent: Sequence[Sent]) -> list[float]:
    """What each request took beside its server's time, seconds."""
    return [took_s - service_s for _, service_s, took_s in sent]


def perfect(sent: Sequence[Sent], slots: int) -> list[float]:
    """The wait of each request, seconds, in a queue that loses no time."""
    free_at = [0.0] * slots
    waits = []
    for at, service_s, _ in sorted(sent):
        begins_at = max(at, heapq.heappop(free_at))
        heapq.heappush(free_at, begins_at + service_s)
        waits.append(begins_at - at)
    return waits


async def send(
    port: int, rate: float, seconds: float, times_ms: Sequence[int], seed: int = SEED
) -> list[Sent]:
    """Send requests from a process of its own, for `PACE` times as long."""
    sent = await call(
        "bench.waits",
        port=port,
        rate=rate,
        seconds=load.PACE * seconds,
        times_ms=times_ms,
        seed=seed,
    )
    return [(at, service_s, took_s) for at, service_s, took_s in sent]


async def _send_all(
    port: int, rate: float, seconds: float, times_ms: Sequence[int], seed: int
) -> list[Sent]:
    chance = random.Random(seed)
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    done: list[Sent] = []
    body = load.chat_body(300)

    async def one(at: float, milliseconds: int) -> None:
        began = time.perf_counter()
        reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        writer.write(load.head(f"{load.PATH}?ms={milliseconds}", body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(load.content_length(answer))
        took_s = time.perf_counter() - began
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a request failed: {answer!r}")
        idle.append((reader, writer))
        done.append((at, milliseconds / 1000, took_s))

    tasks = []
    at, began = 0.0, time.perf_counter()
    while (at := at + chance.expovariate(rate)) < seconds:
        await asyncio.sleep(began + at - time.perf_counter())
        tasks.append(asyncio.create_task(one(time.perf_counter() - began, chance.choice(times_ms))))
    await asyncio.gather(*tasks)
    for _, writer in idle:
        writer.close()
    return done


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_send_all(**json.loads(sys.argv[1])))))
