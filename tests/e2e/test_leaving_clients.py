"""Clients that leave cost nobody a full server: over real Envoy, with servers that count.

The servers are simulators in this process, as only their own count tells that a request had to
wait for a slot there. `make test` sends 1,000 requests, `make nightly` 100,000.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from extproc.demo.simulator.options import Distribution, SimulatorOptions
from extproc.demo.simulator.server import Simulator
from extproc.demo.simulator.slots import Slots, Task
from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.long_run import IS_LONG_RUN

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

REQUESTS = 100_000 if IS_LONG_RUN else 1_000
CLIENTS = 33
"""Half as many again as slots: somebody always waits."""
SLOTS = (2, 4, 8, 8)
SERVICE_S = 0.1
TOKENS = 4
LEAVING = 0.15


@dataclass
class Counts:
    arrived: int = 0
    full: int = 0
    left: int = 0


class CountingSlots(Slots):
    """Counts the tasks that find every slot of this server in use."""

    def __init__(self, count: int, counts: Counts) -> None:
        super().__init__(count, prompt_tokens_per_second=1e6)
        self._counts = counts

    def submit(self, task: Task) -> None:
        self._counts.arrived += 1
        if all(slot.is_processing for slot in self.all):
            self._counts.full += 1
        super().submit(task)


@asynccontextmanager
async def simulators(counts: Counts) -> AsyncIterator[list[str]]:
    """Their addresses."""
    async with AsyncExitStack() as exits:
        addresses = []
        for number, slots in enumerate(SLOTS):
            options = SimulatorOptions(
                slots=slots,
                service_time_s=SERVICE_S,
                distribution=Distribution.EXPONENTIAL,
                seed=number,
            )
            simulator = Simulator(options)
            simulator.slots = CountingSlots(slots, counts)
            port = await simulator.start("127.0.0.1", 0)
            exits.push_async_callback(simulator.close)
            addresses.append(f"127.0.0.1:{port}")
        yield addresses


async def ask(stack: Stack, random: Random, counts: Counts) -> None:
    """One request on a connection of its own; its client leaves at any moment, or reads it all."""
    is_stream = random.random() < 0.5
    body = json.dumps(chat(TOKENS, stream=is_stream)).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    patience_s = random.uniform(0, 2 * SERVICE_S) if random.random() < LEAVING else None
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
    try:
        writer.write(head.encode() + body)
        async with asyncio.timeout(patience_s):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200"), answer[:500]
    except TimeoutError:
        counts.left += 1
    finally:
        writer.transport.abort()


async def test_a_client_that_leaves_sends_nobody_to_a_full_server(tmp_path: Path) -> None:
    """Of all requests none has to wait at its server, while each slot is wanted all the time."""
    counts, random = Counts(), Random(11)
    async with simulators(counts) as addresses:
        # A scrape proves that a slot is free, however long that takes; the cap is no proof.
        settings = {**QUICK, "endpoints": addresses, "ledger": {"draining_cap_s": 60.0}}
        async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
            await stack.until(
                lambda status: (
                    len(status["endpoints"]) == len(SLOTS)
                    and all(one["health"] == "ready" for one in status["endpoints"].values())
                )
            )
            ports = {int(address.rpartition(":")[2]) for address in addresses}

            async def are_known() -> bool:
                return ports <= await stack.known_to_envoy()

            await until(are_known)
            remaining = iter(range(REQUESTS))

            async def client() -> None:
                for _ in remaining:
                    await ask(stack, random, counts)

            await asyncio.gather(*(client() for _ in range(CLIENTS)))
            status = await stack.status()
    assert counts.left > REQUESTS * LEAVING / 3
    assert counts.arrived > REQUESTS / 2
    assert counts.full == 0, (counts, status)
