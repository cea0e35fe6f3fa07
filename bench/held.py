"""Ten thousand requests in line at once: what each costs the picker, and whether all are served."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import load, rig
from bench.process import resident_bytes
from bench.result import Row, Section, at_most
from extproc.demo.port import free_ports
from extproc.demo.process import Children

REQUESTS = 10_000
ARRIVALS_PER_S = 400
LINE = {"queue": {"max_requests": REQUESTS + 1000, "timeout_s": 600}, "log": {"level": "warning"}}


async def measure(say: Callable[[str], None]) -> Section:
    """Hold them all for want of an endpoint, then start one. Before it, the same without us."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with Children(folder) as children:
            floor, grpc_port = await rig.start_noop_picker(children, free_ports(1)[0], holds=True)
            envoy = await rig.start_envoy(children, folder, grpc_port)
            tasks, floor_bytes = await _hold(floor.pid, envoy, say)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with Children(folder) as children:
            port = free_ports(1)[0]
            picker, grpc_port = await rig.start_picker(children, folder, [port], LINE)
            envoy = await rig.start_envoy(children, folder, grpc_port)
            tasks, held_bytes = await _hold(picker.pid, envoy, say)
            say("held: starting the server")
            await rig.start_stand_ins_on(children, folder, [port], 64)
            answers = await asyncio.gather(*tasks)
    served = sum(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    return Section(
        title="Held requests",
        method=f"{REQUESTS} connections through Envoy, {ARRIVALS_PER_S} a second, while the only "
        "endpoint is down; memory is "
        "the picker's resident size, before and with all of them in line; gRPC's part is what a "
        "picker takes that holds them and knows nothing",
        rows=(
            at_most("memory of a held request", held_bytes / 1024, 20, " KB"),
            Row(what="of it gRPC's open stream", value=f"{floor_bytes / 1024:.2f} KB"),
            Row(
                what="answered once a server came",
                value=f"{served} of {REQUESTS}",
                target="all",
                is_met=served == REQUESTS,
            ),
        ),
    )


async def _hold(
    pid: int, envoy: int, say: Callable[[str], None]
) -> tuple[list[asyncio.Task[bytes]], float]:
    """Send them all; returns them and by how many bytes each made the process larger."""
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


async def _ask(port: int) -> bytes:
    body = load.chat_body(0)
    head = f"POST {load.PATH} HTTP/1.1\r\nhost: bench\r\ncontent-length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    try:
        return await reader.readuntil(b"\r\n")
    finally:
        writer.close()
