"""The HTTP server of the status pages: aiohttp in the event loop that everything else shares."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extproc.status.sources import StatusSources

PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
SHUTDOWN_S: Final = 0.5
"""How long an answer that is being sent may still take when the server stops."""
MAX_BODY_BYTES: Final = 64 * 1024


class StatusServer:
    """`/healthz`, `/readyz`, `/status`, `/metrics`, and whatever further `routes` are given.

    Nothing here changes anything, and no answer is kept by caches.
    """

    def __init__(self, sources: StatusSources, routes: Iterable[web.AbstractRouteDef] = ()) -> None:
        self._sources = sources
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.on_response_prepare.append(_forbid_caching)
        app.router.add_get("/healthz", _alive)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/status", self._status)
        app.router.add_get("/metrics", self._metrics)
        app.add_routes(routes)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_S
        )

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (`port` 0 takes a free one); raises `OSError`."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, reuse_address=True)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close all connections; a server that was not started is no error."""
        await self._runner.cleanup()

    async def _ready(self, _: web.Request) -> web.Response:
        obstacles = self._sources.obstacles()
        if not obstacles:
            return web.Response(text="ready\n")
        return web.Response(status=503, text="".join(f"{line}\n" for line in obstacles))

    async def _status(self, _: web.Request) -> web.Response:
        text = json.dumps(self._sources.status(), ensure_ascii=False)
        return web.Response(text=text, content_type="application/json")

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await self._sources.metrics()
        return web.Response(body=text, headers={"content-type": PROMETHEUS_TEXT})


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="alive\n")


async def _forbid_caching(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.setdefault("cache-control", "no-store")
