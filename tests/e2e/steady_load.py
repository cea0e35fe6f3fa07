"""Requests one after another to an Envoy before stand-in servers; not one of them may fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.e2e.one_process import Running
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.picker import until

COMPLETION = "/completion"
PAUSE_S = 0.02
"""Other tests want to compute, too."""


async def ask(client: httpx.AsyncClient) -> httpx.Response:
    """A request that takes a slot; who served it is in `x-coxswain-endpoint`."""
    return await client.post(f"{COMPLETION}?mine=1", json={"prompt": "row"}, timeout=30)


def answers(*servers: FakeLlamaServer) -> None:
    for server in servers:
        server.replies[COMPLETION] = Reply.of({"content": "on"})


class Load:
    """Requests one after another; how many each endpoint served, and what failed."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.failures: list[str] = []
        self.served: dict[str, int] = {}
        self._client = client

    async def run(self) -> None:
        while True:
            try:
                answer = await ask(self._client)
            except httpx.TransportError as error:
                self.failures.append(repr(error))
                continue
            if answer.status_code != 200:
                self.failures.append(f"{answer.status_code} {answer.text[:200]}")
            name = answer.headers.get("x-coxswain-endpoint", "")
            self.served[name] = self.served.get(name, 0) + 1
            await asyncio.sleep(PAUSE_S)

    async def grows(self, count: int, endpoint: object) -> None:
        """Wait until this endpoint served so many more."""
        name = str(endpoint)
        wanted = self.served.get(name, 0) + count
        await until(lambda: self.served.get(name, 0) >= wanted)


@asynccontextmanager
async def load_on(stack: Running) -> AsyncIterator[Load]:
    """Two clients that ask all the time; not one request may fail."""
    load = Load(stack.client)
    tasks = [asyncio.create_task(load.run()) for _ in range(2)]
    try:
        yield load
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert load.failures == []
