"""The cost of 500 agents that each send an observation every second."""

import asyncio
import random
import time

import grpc

from bench.process import cpu_share, resident_bytes
from bench.result import Row, Say, Section, at_most
from bench.rig import Rig
from extproc.core.address import Address
from extproc.core.observation import ModelReading, Observation, ScrapeStatus, SlotReading
from extproc.demo.port import LOOPBACK, free_ports
from extproc.pb.coxswain.v1 import admin_pb2, agent_pb2
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from scraper.agent.link import Link, LinkError

AGENTS = 500
SETTLING_S = 5.0
SECONDS = 15.0
PERIOD_S = 0.98
"""Just below the heartbeat, so that each message is an observation."""
HERE = Address("127.0.0.1", 1)


async def measure(say: Say) -> Section:
    """The picker's processor time while nothing but the agents' looks arrive."""
    async with Rig() as rig:
        [admin] = free_ports(1)
        picker, _ = await rig.start_picker([], admin=admin)
        say(f"agents: {AGENTS} streams, {SECONDS:g} s")
        began = time.monotonic()
        tasks = [asyncio.create_task(_agent(number, admin)) for number in range(AGENTS)]
        try:
            while await _ready(admin) < AGENTS:  # noqa: ASYNC110  # another process changes
                await asyncio.sleep(0.1)
            ready_s = time.monotonic() - began
            await asyncio.sleep(SETTLING_S)
            share = await cpu_share(picker.pid, SECONDS)
            memory = resident_bytes(picker.pid)
            down = await _ready(admin)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return Section(
        title="Agents",
        method=f"{AGENTS} connections, each with one observation a second (4 slots, 2 of "
        f"them busy), {SECONDS:g} s",
        rows=(
            at_most("share of one core", 100 * share, 30, " %"),
            Row(what="all ready after connecting at once", value=f"{ready_s:.1f} s"),
            Row(
                what="endpoints ready at the end",
                value=str(down),
                target=str(AGENTS),
                is_met=down == AGENTS,
            ),
            Row(what="memory of the picker", value=f"{memory / 2**20:.0f} MiB"),
        ),
    )


async def _agent(number: int, port: int) -> None:
    address = Address(f"10.1.{number // 250}.{number % 250 + 1}", 8080)
    hello = agent_pb2.Hello(address=str(address), agent_id=str(number))
    link = Link(hello, lambda: link.report(_scrape()), lambda _: None, time.monotonic)
    link.report(_scrape())
    pushing = asyncio.create_task(_push(link))
    options = (("grpc.use_local_subchannel_pool", 1),)
    try:
        while True:
            async with grpc.aio.insecure_channel(f"{LOOPBACK}:{port}", options=options) as channel:
                try:
                    await link.run(channel)
                except LinkError:
                    await asyncio.sleep(random.random())
    finally:
        pushing.cancel()


async def _push(link: Link) -> None:
    await asyncio.sleep(random.random())
    while True:
        await asyncio.sleep(PERIOD_S)
        link.report(_scrape())


def _scrape() -> Observation:
    now = time.monotonic()
    return Observation(
        address=HERE,
        began_at=now - 0.002,
        answered_at=now,
        status=ScrapeStatus.READY,
        slots=4,
        busy_slots=2,
        models=(ModelReading(name="some-model-with-a-long-name.gguf"),),
        instance="0123456789abcdef",
        slot_readings=tuple(
            SlotReading(
                task_id=task,
                prompt_tokens=900,
                cached_tokens=500,
                decoded_tokens=random.randrange(500),
            )
            for task in (1, 2)
        ),
        context_tokens=8192,
    )


async def _ready(port: int) -> int:
    async with grpc.aio.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        status = await AdminStub(channel).GetStatus(admin_pb2.GetStatusRequest())
    return status.endpoints_by_health.get("ready", 0)
