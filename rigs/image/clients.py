"""Clients that send one request after the other, and count what is not a whole response."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx

PATH: Final = "/v1/chat/completions"
ENVOY: Final = "http://127.0.0.1:10000"
DEADLINE_S: Final = 60.0


@dataclass(slots=True)
class Load:
    """What the clients have seen so far."""

    served: int = 0
    retries: int = 0
    """Of requests that a stopping picker rejected before a server began them."""
    failures: list[str] = field(default_factory=list)
    _has_served: asyncio.Event = field(default_factory=asyncio.Event)

    def count_served(self) -> None:
        """One more response was whole."""
        self.served += 1
        self._has_served.set()

    async def wait_served(self, more: int) -> None:
        """Return when that many further requests have been served; a minute at most."""
        wanted = self.served + more
        async with asyncio.timeout(DEADLINE_S):
            while self.served < wanted:
                self._has_served.clear()
                await self._has_served.wait()


@asynccontextmanager
async def clients(count: int, envoys: Sequence[str] = (ENVOY,)) -> AsyncIterator[Load]:
    """Run `count` at once at each of the Envoys; half ask for streams. The last responses are read
    to their end."""
    load, stopping = Load(), asyncio.Event()
    async with httpx.AsyncClient(timeout=DEADLINE_S) as client, asyncio.TaskGroup() as group:
        for number in range(count):
            for envoy in envoys:
                is_stream = number % 2 == 0
                group.create_task(_send(client, envoy, load, stopping, is_stream=is_stream))
        try:
            yield load
        finally:
            stopping.set()


async def _send(
    client: httpx.AsyncClient, envoy: str, load: Load, stopping: asyncio.Event, *, is_stream: bool
) -> None:
    body = {
        "messages": [{"role": "user", "content": "Who steers?"}],
        "max_tokens": 32,
        "stream": is_stream,
    }
    while not stopping.is_set():
        try:
            response = await client.post(envoy + PATH, json=body)
        except httpx.HTTPError as error:
            load.failures.append(f"{type(error).__name__}: {error}")
            continue
        if response.headers.get("x-coxswain-reason") == "shutting-down":
            load.retries += 1
            await asyncio.sleep(float(response.headers["retry-after"]))  # as OpenAI's clients do
        elif response.status_code != httpx.codes.OK:
            load.failures.append(f"{response.status_code}: {response.text.strip()}")
        elif is_stream and not response.text.rstrip().endswith("data: [DONE]"):
            load.failures.append("a stream without its end")
        else:
            load.count_served()
