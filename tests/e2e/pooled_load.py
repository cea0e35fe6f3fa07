"""Clients that ask at the ports of pools all the time, while parts of the picker are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import httpx

from tests.e2e.stack import chat, until

CLIENTS = 4
"""At each port: one runs, the others wait."""


class PooledLoad:
    """`urls` are by pool, and so are the `headers` of its clients. `served_by` says which server an
    answer is from."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        urls: Mapping[str, str],
        served_by: Callable[[httpx.Response], str],
        headers: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._client = client
        self._urls = urls
        self._served_by = served_by
        self._headers = headers or {}
        self._is_over = False
        self.answers: dict[str, list[tuple[int, str]]] = {pool: [] for pool in urls}
        """The status of each, and its server."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """In the end each client waits for its last answer."""
        clients = [
            asyncio.create_task(self._ask(pool)) for pool in self._urls for _ in range(CLIENTS)
        ]
        try:
            yield
        finally:
            self._is_over = True
            await asyncio.gather(*clients)

    async def _ask(self, pool: str) -> None:
        url, headers = self._urls[pool], self._headers.get(pool)
        while not self._is_over:
            answer = await self._client.post(url, json=chat(20), headers=headers)
            self.answers[pool].append((answer.status_code, self._served_by(answer)))

    async def until_served(self, more: int = 8) -> None:
        """Until so many more answers have come at each port."""
        counts = {pool: len(found) + more for pool, found in self.answers.items()}

        async def is_served() -> bool:
            await asyncio.sleep(0)
            return all(len(self.answers[pool]) >= count for pool, count in counts.items())

        await until(is_served)
