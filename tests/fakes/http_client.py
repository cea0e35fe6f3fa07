"""httpx's client, for servers that are killed while they are asked."""

from __future__ import annotations

import ssl
from typing import Any

import httpx


class Client(httpx.AsyncClient):
    """Raises `httpx.ConnectError` also for a connection that was reset as it was made: over uvloop
    it has no socket any more, for which anyio raises AttributeError.

    It trusts nobody unless `verify` says whom: to read the machine's authorities takes longer than
    many a request."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), **options})

    async def send(self, *arguments: Any, **options: Any) -> httpx.Response:
        try:
            return await super().send(*arguments, **options)
        except AttributeError as error:
            raise httpx.ConnectError("reset as it was made") from error
