"""httpx's transport to a llama-server, which limits interim responses and survives early resets.

HTTP allows any number of interim answers (100 to 199) before the real one, and the library below
reads them all, as fast as they come. A server that sends nothing else keeps half a core busy
until the question's time is over, and a question to /slots has half a minute.
"""

import re
import ssl
from collections.abc import Iterable
from functools import cache
from typing import Any

import httpcore
import httpx

MAX_CONNECTIONS = 4
"""To one server; further requests wait for one."""
MAX_INTERIM_BYTES = 16 * 1024
"""The limit, a few hundred interim responses; llama-server sends none."""

_FINAL = re.compile(rb"\nHTTP/1\.[01] [2-5]")
_LONGEST_START = len(b"\nHTTP/1.1 ")
_BEGINNING = b"\n"
"""A status line begins at the beginning of a line."""

Options = Iterable[Any]


class RunnerTransport(httpx.AsyncHTTPTransport):
    """With our own network backend, for which httpx has no argument."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(verify=tls, trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_CONNECTIONS,
            keepalive_expiry=None,
            network_backend=InterimLimitBackend(httpcore.AnyIOBackend()),
        )


@cache
def no_tls() -> ssl.SSLContext:
    """One empty context for plain http: httpx wants one, and even that takes a millisecond."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class InterimLimitBackend(httpcore.AsyncNetworkBackend):
    """Connects as `inner` does; its streams raise `httpcore.ReadError` above the limit."""

    def __init__(self, inner: httpcore.AsyncNetworkBackend) -> None:
        self._inner = inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's
        local_address: str | None = None,
        socket_options: Options | None = None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return InterimLimitStream(stream)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class InterimLimitStream(httpcore.AsyncNetworkStream):
    """Counts the bytes after a request until a final status line."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._has_final = False
        self._interim_bytes = 0
        self._end = _BEGINNING

    async def read(
        self,
        max_bytes: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's
    ) -> bytes:
        came = await self._inner.read(max_bytes, timeout)
        if not self._has_final:
            self._check(came)
        return came

    async def write(
        self,
        buffer: bytes,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's
    ) -> None:
        self._has_final, self._interim_bytes, self._end = False, 0, _BEGINNING
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's
    ) -> httpcore.AsyncNetworkStream:
        try:
            inner = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:  # httpcore closes it after errors alone, not when it is cancelled
            await self._inner.aclose()
            raise
        return InterimLimitStream(inner)

    def get_extra_info(self, info: str) -> Any:
        try:
            return self._inner.get_extra_info(info)
        except AttributeError:  # anyio's, of a socket that was reset before anybody asked
            return None

    def _check(self, came: bytes) -> None:
        self._has_final = _FINAL.search(self._end + came) is not None
        self._end = (self._end + came)[-_LONGEST_START:]
        self._interim_bytes += len(came)
        if not self._has_final and self._interim_bytes > MAX_INTERIM_BYTES:
            raise httpcore.ReadError("too many interim responses")
