"""Requests one after another through Envoy, and every one that failed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tests.e2e.stack import Stack

PAUSE_S = 0.2
"""Other tests want to compute, too."""


class Load:
    """What became of the requests so far: `served` by endpoint, `failures` in words."""

    def __init__(self) -> None:
        self.served: Counter[str] = Counter()
        self.failures: list[str] = []

    async def grew(self, count: int, endpoint: str | None = None) -> None:
        """Wait until so many more were served, by this endpoint where it is named."""
        before = self._count(endpoint)
        while self._count(endpoint) < before + count:  # noqa: ASYNC110  # many workers, no event
            await asyncio.sleep(0.01)

    def _count(self, endpoint: str | None) -> int:
        return self.served.total() if endpoint is None else self.served[endpoint]


@asynccontextmanager
async def constant_load(stack: Stack, clients: int = 4) -> AsyncIterator[Load]:
    """So many clients, each asking again soon after it is answered. Fails with any request."""
    load = Load()

    async def ask_on() -> None:
        while True:
            try:
                answer = await stack.ask(4)
            except httpx.TransportError as error:
                load.failures.append(repr(error))
                continue
            if answer.status_code != 200:
                load.failures.append(f"{answer.status_code} {answer.text[:200]}")
            load.served[answer.headers.get("x-coxswain-endpoint", "")] += 1
            await asyncio.sleep(PAUSE_S)

    tasks = [asyncio.create_task(ask_on()) for _ in range(clients)]
    try:
        yield load
        await load.grew(clients)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert load.failures == []
