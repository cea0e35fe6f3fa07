"""Requests that are never streamed share connections to the servers, and none is lost by that: over
real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import httpx
import pytest
import pytest_asyncio

from extproc.demo.model import ModelShape
from tests.e2e.stack import CHAT, Stack, chat
from tests.long_run import IS_LONG_RUN, in_long_run

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.llama,
    pytest.mark.timeout(3600 if IS_LONG_RUN else 300),
]

REQUESTS = 100_000 if IS_LONG_RUN else 600
CLIENTS = 12
"""More than the servers have slots: connections are wanted as soon as they are free."""
SLOTS = (4, 4)
PAUSES_S = (1.0,) * 40 + (5.0,) * 40 if IS_LONG_RUN else (1.0, 5.0)
"""Where Envoy lets an idle connection go, and where llama-server would."""
STREAMS = 2000 if IS_LONG_RUN else 60
RESTARTS = 10
EMBEDDINGS = "/v1/embeddings"


class Traffic:
    """Sends embeddings, and counts what clients got, what Envoy sent and what the servers did."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        limits = httpx.Limits(max_connections=None)
        self.client = httpx.AsyncClient(timeout=60, limits=limits)
        self.statuses: Counter[int] = Counter()
        self.tokens = 0

    async def embed(self) -> None:
        body = {"input": "row row"}
        answer = await self.client.post(self.stack.url(EMBEDDINGS), json=body)
        self.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.tokens += answer.json()["usage"]["prompt_tokens"]

    async def embed_many(self, count: int) -> None:
        """So many from all clients together, one after another from each."""
        left = iter(range(count))

        async def send() -> None:
            for _ in left:
                await self.embed()

        await asyncio.gather(*(send() for _ in range(CLIENTS)))

    async def embed_until(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await self.embed()

    async def of_envoy(self) -> Counter[str]:
        """Envoy's counters about the servers."""
        prefix = "cluster.llama."
        port = self.stack.envoy_admin_port
        page = await self.client.get(f"http://127.0.0.1:{port}/stats?filter=^{prefix}upstream_")
        lines = (line.removeprefix(prefix).split(": ") for line in page.text.splitlines())
        return Counter({name: int(value) for name, value in lines if value.isdecimal()})

    async def of_servers(self) -> int:
        """How many tokens of prompts the servers have read."""
        found = 0
        for server in self.stack.servers:
            page = await self.client.get(f"http://{server.address}/metrics")
            named = dict(line.split() for line in page.text.splitlines() if line[:1] != "#")
            found += int(named["llamacpp:prompt_tokens_total"])
        return found


@pytest_asyncio.fixture
async def traffic(llama: None, tmp_path: Path) -> AsyncIterator[Traffic]:
    flags = ("--embeddings", "--pooling", "mean", "--metrics")
    async with Stack.running(
        tmp_path,
        slots=SLOTS,
        shapes=(ModelShape(),) * len(SLOTS),
        flags=(flags,) * len(SLOTS),
        settings={"envoy": {"reuse_connections": True}},
    ) as stack:
        found = Traffic(stack)
        async with found.client:
            yield found


async def test_no_request_is_lost_on_a_connection_that_is_used_again(traffic: Traffic) -> None:
    """Each is sent once, and worked on once, also after pauses in which either side hangs up."""
    before, read = await traffic.of_envoy(), await traffic.of_servers()
    await traffic.embed_many(REQUESTS)
    busy = await traffic.of_envoy() - before
    random = Random(7)
    for pause_s in PAUSES_S:
        await asyncio.gather(*(traffic.embed() for _ in range(sum(SLOTS))))
        await asyncio.sleep(pause_s + random.uniform(-0.02, 0.02))
    await traffic.embed()
    sent = REQUESTS + len(PAUSES_S) * sum(SLOTS) + 1
    assert traffic.statuses == {200: sent}
    told = await traffic.of_envoy() - before
    assert (told["upstream_rq_total"], told["upstream_rq_503"]) == (sent, 0)
    assert await traffic.of_servers() - read == traffic.tokens
    assert busy["upstream_cx_total"] < REQUESTS / 4, "connections are used again"


async def test_no_stream_leaves_its_connection_to_the_next_request(traffic: Traffic) -> None:
    """llama-server hangs up after it; those before it on the same connection were not streamed."""
    stack = traffic.stack
    before = await traffic.of_envoy()
    left = iter(range(STREAMS))

    async def alternate() -> None:
        for _ in left:
            await traffic.embed()
            answer = await traffic.client.post(stack.url(CHAT), json=chat(3, stream=True))
            assert answer.status_code == 200, answer.headers
            assert answer.text.endswith("data: [DONE]\n\n"), answer.text
            assert "connection" not in answer.headers, "it is said to Envoy, not to the client"

    await asyncio.gather(*(alternate() for _ in range(4)))
    assert traffic.statuses == {200: STREAMS}
    told = await traffic.of_envoy() - before
    assert (told["upstream_rq_total"], told["upstream_rq_503"]) == (2 * STREAMS, 0)
    assert STREAMS <= told["upstream_cx_total"] < 2 * STREAMS


@in_long_run
async def test_a_restart_costs_no_more_than_what_its_server_had(traffic: Traffic) -> None:
    """What it had begun is lost with it, and must not be sent again; all others are served. It is
    killed: one that is told to end goes on for as long as somebody waits for a response."""
    stack = traffic.stack
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(traffic.embed_until(is_over))
        for number in range(RESTARTS):
            server = stack.servers[number % len(SLOTS)]
            await asyncio.sleep(1)
            await stack.kill(server.child)
            await stack.start_server(server)
        await asyncio.sleep(1)
        is_over.set()
    lost = traffic.statuses.total() - traffic.statuses[200]
    assert lost <= RESTARTS * max(SLOTS), traffic.statuses
    assert traffic.statuses[200] > 100 * RESTARTS
