"""Ten thousand queued requests: the cost of each, how soon a withdrawn one leaves the queue, and
whether all others are served."""

import asyncio
import os
import time
from collections.abc import Mapping
from ctypes.util import find_library
from dataclasses import dataclass
from statistics import median

import grpc

from bench import load
from bench.process import resident_bytes
from bench.result import Row, Say, Section, at_most, measured
from bench.rig import QUIET, Rig
from extproc.demo.port import LOOPBACK, free_ports
from extproc.demo.process import Child
from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1 import admin_pb2_grpc as pb_grpc

REQUESTS = 10_000
ARRIVALS_PER_S = 400
LEAVERS = 200
SETTLE_S = 5.0
EARLIER = 300
"""Requests that were answered before, as most pickers have answered some: until the first of a
connection has ended, gRPC guesses what a call takes, and guesses too much."""
JEMALLOC = {
    "LD_PRELOAD": "libjemalloc.so.2",
    "PYTHONMALLOC": "malloc",
    "MALLOC_CONF": "narenas:1,background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0",
}
"""The environment of the image."""
LINE = {**QUIET, "queue": {"max_requests": REQUESTS + 1000, "timeout_s": 600}}


async def measure(say: Say) -> Section:
    """Hold them all for want of an endpoint, then start one; with jemalloc again, where that is
    installed. Before it, the same without us, and on a connection of which nothing was answered
    yet."""
    async with Rig() as rig:
        floor, grpc_port, _ = await rig.start_noop_picker(free_ports(1)[0], holds=True)
        floor_bytes = await _hold_in_vain(rig, floor, grpc_port, EARLIER, say)
    async with Rig() as rig:
        fresh, grpc_port = await rig.start_picker(free_ports(1), LINE)
        fresh_bytes = await _hold_in_vain(rig, fresh, grpc_port, 0, say)
    ours = await _serve_all(None, say)
    lean = await _serve_all(JEMALLOC, say) if find_library("jemalloc") else None
    delays_ms = ours.delays_ms
    rows = [
        at_most("memory per queued request", ours.held_bytes / 1024, 3, " KB"),
        at_most("of it not given back when all are served", ours.left_bytes / 1024, 1, " KB"),
    ]
    if lean is None:
        rows.append(Row(what="the same, with jemalloc", value="it is not installed"))
    else:
        kept_kb, left_kb = lean.held_bytes / 1024, lean.left_bytes / 1024
        rows.append(at_most("memory per queued request, with jemalloc", kept_kb, 3, " KB"))
        rows.append(at_most("of it not given back, with jemalloc", left_kb, 1, " KB"))
    return Section(
        title="Queued requests",
        method=f"{REQUESTS} connections through Envoy, {ARRIVALS_PER_S} a second, while the only "
        f"endpoint is down, after {EARLIER} other requests; memory is "
        "the picker's resident size, before and with all of them queued, compared with a picker "
        f"that only holds the requests; {LEAVERS} clients leave one by one, and the status page "
        "is polled until it shows that",
        rows=(
            *rows,
            measured("memory per queued request, with no earlier ones", fresh_bytes / 1024, " KB"),
            measured("of a picker that only holds requests", floor_bytes / 1024, " KB"),
            measured("time until a client that left is out of the queue", median(delays_ms), " ms"),
            at_most("the same, the slowest", max(delays_ms), 100, " ms"),
            Row(
                what="others served when a server came up",
                value=f"{ours.served} of {ours.asked}",
                target="all",
                is_met=ours.served == ours.asked,
            ),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What became of a picker that held them all and then served them; bytes for each request."""

    held_bytes: float
    left_bytes: float
    delays_ms: list[float]
    served: int
    asked: int


async def _serve_all(environment: Mapping[str, str] | None, say: Say) -> Served:
    """Hold them all for want of an endpoint, let some leave, and start one for the others."""
    if environment is not None:
        environment = {**os.environ, **environment}
    async with Rig() as rig:
        port, admin = free_ports(2)
        picker, grpc_port = await rig.start_picker([port], LINE, admin, environment=environment)
        _, envoy = await rig.start_envoy(grpc_port)
        empty = resident_bytes(picker.pid)
        tasks, held_bytes = await _hold(picker.pid, envoy, EARLIER, say)
        say(f"held: {LEAVERS} clients leave")
        delays_ms = await _leave([tasks.pop() for _ in range(LEAVERS)], admin)
        say("held: starting the server")
        await rig.start_stand_ins([port], 64)
        answers = await asyncio.gather(*tasks)
        await asyncio.sleep(SETTLE_S)
        left_bytes = (resident_bytes(picker.pid) - empty) / REQUESTS
    return Served(
        held_bytes=held_bytes,
        left_bytes=left_bytes,
        delays_ms=delays_ms,
        served=sum(answer.startswith(b"HTTP/1.1 200") for answer in answers),
        asked=len(answers),
    )


async def _hold_in_vain(rig: Rig, picker: Child, grpc_port: int, earlier: int, say: Say) -> float:
    """By how many bytes each made a picker larger, all of whose clients leave then."""
    _, envoy = await rig.start_envoy(grpc_port)
    tasks, size = await _hold(picker.pid, envoy, earlier, say)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return size


async def _hold(
    pid: int, envoy: int, earlier: int, say: Say
) -> tuple[list[asyncio.Task[bytes]], float]:
    """Send them all, after others that are answered at once; returns them and by how many bytes
    each made the process larger."""
    for _ in range(earlier):
        await _send(envoy, b"GET /health HTTP/1.1\r\nhost: bench\r\n\r\n")
    before = resident_bytes(pid)
    tasks = []
    for number in range(REQUESTS):
        if number % ARRIVALS_PER_S == 0:
            say(f"held: {number} of {REQUESTS} requests sent to a fleet without a server")
        tasks.append(asyncio.create_task(_ask(envoy)))
        await asyncio.sleep(1 / ARRIVALS_PER_S)
    size = 0
    while (now := resident_bytes(pid)) - size > REQUESTS * 20:
        size = now
        await asyncio.sleep(3)
    return tasks, (size - before) / REQUESTS


async def _leave(tasks: list[asyncio.Task[bytes]], admin: int) -> list[float]:
    """Let clients go, one by one; the milliseconds until each had left the queue."""
    delays_ms = []
    async with grpc.aio.insecure_channel(f"{LOOPBACK}:{admin}") as channel:
        status = pb_grpc.AdminStub(channel).GetStatus
        for task in tasks:
            waiting = (await status(pb.GetStatusRequest())).queue.queued
            began = time.perf_counter()
            task.cancel()
            while (await status(pb.GetStatusRequest())).queue.queued >= waiting:
                pass
            delays_ms.append(1000 * (time.perf_counter() - began))
    return delays_ms


async def _ask(port: int) -> bytes:
    body = load.chat_body(0)
    head = f"POST {load.PATH} HTTP/1.1\r\nhost: bench\r\ncontent-length: {len(body)}\r\n\r\n"
    return await _send(port, head.encode() + body)


async def _send(port: int, request: bytes) -> bytes:
    """On a connection of its own; returns the first line of the answer."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(request)
    try:
        return await reader.readuntil(b"\r\n")
    finally:
        writer.close()
