"""httpx's client, for servers that are killed while they are asked."""

from __future__ import annotations

from typing import Any

import httpx


class Client(httpx.AsyncClient):
    """Raises `httpx.ConnectError` also for a connection that was reset as it was made: over uvloop
    it has no socket any more, for which anyio raises AttributeError."""

    async def send(self, *arguments: Any, **options: Any) -> httpx.Response:
        try:
            return await super().send(*arguments, **options)
        except AttributeError as error:
            raise httpx.ConnectError("reset as it was made") from error
