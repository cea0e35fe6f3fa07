"""Clients that leave, in every way there is, cost nobody a full server: over real Envoy, with
servers that count.

Simulators in this process count each request that had to wait for a slot there; a llama-server says
itself how many requests it defers. `make test` sends 1,000 requests, `make nightly` 100,000.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from extproc.demo.model import ModelShape
from extproc.demo.simulator import answers
from extproc.demo.simulator.options import Distribution, SimulatorOptions
from extproc.demo.simulator.server import Simulator
from extproc.demo.simulator.slots import Slots, Task
from rigs.leaving import WAYS, Http2Call, Way, leave
from rigs.node_client import node_client
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
    patience_s = random.uniform(0, 2 * SERVICE_S) if random.random() < LEAVING else None
    request = chat(TOKENS, stream=is_stream)
    if await has_left(stack, request, random.choice(WAYS), patience_s):
        counts.left += 1


async def has_left(
    stack: Stack, request: dict[str, Any], way: Way, patience_s: float | None
) -> bool:
    """Ask, and leave in this way if the whole response is not there in time."""
    body = json.dumps(request).encode()
    if way.is_http2:
        call = await Http2Call.open("127.0.0.1", stack.envoy_port)
        call.send(CHAT, [("content-type", "application/json")], body)
        try:
            async with asyncio.timeout(patience_s):
                await call.read_on()
        except TimeoutError:
            await call.leave(way)
            return True
        await call.leave(Way.H2_FIN)
        assert call.status == 200
        return False
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", stack.envoy_port)
    writer.write(head.encode() + body)
    try:
        async with asyncio.timeout(patience_s):
            answer = await reader.read()
    except TimeoutError:
        await leave(reader, writer, way)
        return True
    writer.transport.abort()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:500]
    return False


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


class BriefSimulator(Simulator):
    """Answers at once, without a length, as a proxy before a server may."""

    async def _answered(
        self, kind: type[answers.Answer], request: web.Request
    ) -> web.StreamResponse:
        response = await super()._answered(kind, request)
        if not response.prepared:
            response.enable_chunked_encoding()
        return response


@pytest.mark.parametrize("is_stream", [False, True])
async def test_short_responses_without_a_length_free_their_slots(
    tmp_path: Path, is_stream: bool
) -> None:
    """All of them is at Envoy with our reply to their headers, and Envoy reports their ends just
    behind that. This server shows no slots, so that nothing else frees one. The first answers may
    come before Envoy has begun to report, and of the others one may be reported late."""
    slots = 16
    simulator = BriefSimulator(SimulatorOptions(slots=slots, service_time_s=0.0, shows_slots=False))
    port = await simulator.start("127.0.0.1", 0)
    address = f"127.0.0.1:{port}"
    settings = {
        **QUICK,
        "endpoints": [{"address": address, "slots": slots}],
        "ledger": {"blind_draining_cap_s": 600.0, "draining_cap_s": 600.0},
        "queue": {"timeout_s": 5.0},
    }
    try:
        async with Stack.running(tmp_path, slots=(), settings=settings) as stack:

            async def is_known() -> bool:
                return port in await stack.known_to_envoy()

            async def leased_after_one() -> int:
                body = chat(TOKENS, stream=is_stream)
                answer = await stack.client.post(stack.url(CHAT), json=body)
                assert answer.status_code == 200, answer.text
                status = await stack.status()
                return int(status["slots"]["leased"])

            await until(is_known)
            before, leased = -1, await leased_after_one()
            while leased > before:
                before, leased = leased, await leased_after_one()
            later = [await leased_after_one() for _ in range(20)]
            assert later[-1] <= leased + 1
    finally:
        await simulator.close()


SLOW_MODEL = ModelShape(embedding=512, layers=16)
"""A step of it takes some 10 ms, so that who waits for its end is seen."""
ROUNDS = 2
"""How often clients leave in each way."""
OUTLASTING = 400
"""Tokens of a response that its client leaves."""
DEFERRED = re.compile(r"^llamacpp:requests_deferred (\d+)", re.MULTILINE)


async def test_a_llama_server_defers_nobody_however_its_clients_leave(tmp_path: Path) -> None:
    """It ends the step that it computes before it frees a slot, so who came at once would wait
    there. Node's own client is among those that leave, as it does by default."""
    async with (
        node_client(pytest.skip) as node,
        Stack.running(
            tmp_path, slots=(2,), shapes=(SLOW_MODEL,), flags=(("--metrics",),), settings=QUICK
        ) as stack,
    ):
        assert node is not None
        random = Random(5)
        request = chat(OUTLASTING, stream=True)
        headers = {"content-type": "application/json"}
        deferred: list[int] = []
        left: list[Way] = []

        async def leave_in(way: Way, number: int) -> None:
            patience_s = random.uniform(0.05, 0.3)
            if way.is_of_node:
                body = json.dumps(request).encode()
                port, id_ = stack.envoy_port, f"{way.value}-{number}"
                ended = await node.ask(id_, port, CHAT, headers, body, way, patience_s)
                assert (ended.has_left, ended.error) == (True, "")
            else:
                assert await has_left(stack, request, way, patience_s)
            left.append(way)

        ways = [*Way] * ROUNDS
        numbers = count()

        async def client() -> None:
            """Until they left in all ways, and the server was looked at as often."""
            while (number := next(numbers)) < len(ways) or len(deferred) <= len(ways):
                await leave_in(ways[number % len(ways)], number)

        async def look() -> None:
            while True:
                page = await stack.client.get(f"http://{stack.servers[0].address}/metrics")
                found = DEFERRED.search(page.text)
                assert found is not None
                deferred.append(int(found[1]))

        looking = asyncio.create_task(look())
        try:
            await asyncio.gather(*(client() for _ in range(4)))
        finally:
            looking.cancel()
    assert len(left) >= len(ways) and len(deferred) > len(ways)
    assert set(deferred) == {0}
