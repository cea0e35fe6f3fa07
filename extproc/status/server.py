"""The HTTP server of the status pages: aiohttp in the event loop that everything else shares."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from extproc.core.views.fleet_capacity import FleetHealth
from extproc.security.foreign_text import json_text
from extproc.status.dashboard import dashboard
from extproc.status.hosts import Hosts
from extproc.transport.descriptors import PAGES
from extproc.transport.http_port import HttpPort

FOR_ANY_HOST: Final = ("/queue/", "/healthz")
MISDIRECTED: Final = 421
MISDIRECTED_TEXT: Final = (
    "This host name is not allowed here: use an IP address or localhost, "
    "or add the name to the setting listen.http_hosts.\n"
)
PROMETHEUS_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
SHUTDOWN_S: Final = 0.5
"""The longest time to finish responses when the server stops."""
MAX_BODY_BYTES: Final = 64 * 1024
MAX_AGE_S: Final = 0.5
"""How old an answer with JSON may be at most, for those who say that they take old ones."""
MAX_KEPT: Final = 100
"""The number of such answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSources:
    """Where the pages get their contents.

    `problems` are what an operator should fix, though requests are served.
    `health` are the slots of the whole fleet. `status` gives a tree of plain values for JSON;
    `obstacles` the reasons why the picker is not ready, none when it is; `activity` a tree of what
    passes, for the address of one endpoint or for "" of all; `metrics` the Prometheus text, which
    may take a while.
    """

    health: Callable[[], FleetHealth]
    status: Callable[[int | None, str], dict[str, Any]]
    activity: Callable[[str], dict[str, Any]]
    obstacles: Callable[[], tuple[str, ...]]
    problems: Callable[[], Sequence[str]]
    metrics: Callable[[], Awaitable[bytes]]


class StatusServer:
    """The dashboard at `/`, `/status`, `/activity`, `/health`, `/healthz`, `/readyz`, `/metrics`,
    and further `routes`.

    Only what the routes bring may change anything. No answer is kept by caches.
    """

    def __init__(
        self,
        sources: StatusSources,
        routes: Iterable[web.AbstractRouteDef] = (),
        hosts: Hosts | None = None,
        links: Mapping[str, str] | None = None,
    ) -> None:
        """`links` are what the dashboard links to: web addresses by name."""
        self._sources = sources
        self._dashboard = dashboard(links)
        self._kept: dict[str, tuple[float, str]] = {}
        app = web.Application(
            client_max_size=MAX_BODY_BYTES,
            middlewares=[_only_for(hosts or Hosts())],
        )
        app.on_response_prepare.append(_forbid_caching)
        app.router.add_get("/", self._page)
        app.router.add_get("/healthz", _alive)
        app.router.add_get("/health", self._health)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/status", self._status)
        app.router.add_get("/activity", self._activity)
        app.router.add_get("/metrics", self._metrics)
        app.add_routes(routes)
        self._port = HttpPort(app, "the pages", PAGES, SHUTDOWN_S)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port (`port` 0 takes a free one); raises `OSError`."""
        return await self._port.start(host, port)

    async def stop(self) -> None:
        """Close all connections; a server that was not started is no error."""
        await self._port.stop()

    async def _page(self, _: web.Request) -> web.Response:
        page = self._dashboard
        return web.Response(text=page.html, content_type="text/html", headers=page.headers)

    async def _health(self, _: web.Request) -> web.Response:
        health = self._sources.health()
        return web.Response(
            status=health.http_status, body=health.as_json(), content_type="application/json"
        )

    async def _ready(self, _: web.Request) -> web.Response:
        obstacles = self._sources.obstacles()
        lines = [
            *(obstacles or ("ready",)),
            *(f"problem: {each}" for each in self._sources.problems()),
        ]
        status = 503 if obstacles else 200
        return web.Response(status=status, text="".join(f"{line}\n" for line in lines))

    async def _status(self, request: web.Request) -> web.Response:
        try:
            limit = int(request.query["limit"]) if "limit" in request.query else None
        except ValueError:
            limit = -1
        if limit is not None and limit < 0:
            return web.Response(status=400, text="limit: must be a whole number, at least 0\n")
        named = request.query.get("endpoint", "")
        return self._json(request, lambda: self._sources.status(limit, named))

    async def _activity(self, request: web.Request) -> web.Response:
        endpoint = request.query.get("endpoint", "")
        return self._json(request, lambda: self._sources.activity(endpoint))

    def _json(self, request: web.Request, read: Callable[[], dict[str, Any]]) -> web.Response:
        """What `read` gives now, or what it gave lately if this client takes that."""
        now = asyncio.get_running_loop().time()
        max_age_s = _max_age_s(request)
        at, text = self._kept.get(request.path_qs, (-inf, ""))
        if now - at >= max_age_s:
            text = json_text(read())
            self._keep(request.path_qs, now, text)
        return web.Response(text=text, content_type="application/json")

    def _keep(self, path: str, now: float, text: str) -> None:
        self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < MAX_AGE_S}
        if len(self._kept) < MAX_KEPT:
            self._kept[path] = (now, text)

    async def _metrics(self, _: web.Request) -> web.Response:
        text = await self._sources.metrics()
        return web.Response(body=text, headers={"content-type": PROMETHEUS_TEXT})


def _only_for(hosts: Hosts) -> Middleware:
    """Responds with 421 to any other `Host`, except at `/healthz`, which has no content, and at
    `/queue/`, which Envoy requests with its clients' `Host`: pages of all origins may use it."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get("host", "")
        if request.path.startswith(FOR_ANY_HOST) or hosts.allows(host):
            return await handler(request)
        return web.Response(status=MISDIRECTED, text=MISDIRECTED_TEXT)

    return check


async def _alive(_: web.Request) -> web.Response:
    return web.Response(text="alive\n")


async def _forbid_caching(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.setdefault("cache-control", "no-store")


def _max_age_s(request: web.Request) -> float:
    """How old an answer this client takes: with a large fleet many dashboards share one."""
    found = re.search(r"max-age=(\d{1,9})", request.headers.get("cache-control", ""))
    return min(MAX_AGE_S, float(found[1])) if found else 0.0
