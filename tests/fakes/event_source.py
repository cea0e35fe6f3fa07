"""What a browser's `EventSource` makes of a URL, as HTML's standard has it.

It asks again whenever a stream ends, after the time that the stream told it; an answer that is
not 200 with the right type closes it for good, with an error.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ORIGIN: Final = "https://page.example"


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: Any


class EventSource:
    """Iterate over its events; the iteration ends when a browser would give up."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url
        self.retry_s = 3.0
        self.connections = 0
        self.last_status = 0

    async def __aiter__(self) -> AsyncIterator[Event]:
        headers = {"accept": "text/event-stream", "cache-control": "no-cache", "origin": ORIGIN}
        while True:
            self.connections += 1
            try:
                async with self._client.stream("GET", self._url, headers=headers) as answer:
                    self.last_status = answer.status_code
                    assert answer.headers.get("access-control-allow-origin") in ("*", ORIGIN)
                    if answer.status_code != 200:
                        return
                    assert answer.headers["content-type"].startswith("text/event-stream")
                    async for event in self._events(answer):
                        yield event
            except httpx.TransportError:
                pass  # as after a stream that ended
            await asyncio.sleep(self.retry_s)

    async def _events(self, answer: httpx.Response) -> AsyncIterator[Event]:
        name, data = "message", ""
        async for line in answer.aiter_lines():
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                if data:
                    yield Event(name, json.loads(data))
                name, data = "message", ""
            elif field == "event":
                name = value
            elif field == "data":
                data += value
            elif field == "retry":
                self.retry_s = int(value) / 1000
