"""`GET /playground`: a prompt box that sends requests through Envoy from the viewer's browser.

The page asks Envoy, which is another origin: its policy names this one besides its own. The picker
forwards nothing, and what a viewer may do, its own key says.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from extproc.status.dashboard import Page, page

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d+)?")
PAGES: Final = 16
"""The number of gateways whose page is kept."""


class Playground:
    """`gateway_url` is where viewers reach Envoy. Without it, that is the host by which they
    reached this page, at Envoy's port."""

    def __init__(self, gateway_url: str | None, envoy_port: int) -> None:
        self._gateway = None if gateway_url is None else _origin(gateway_url)
        self._envoy_port = envoy_port
        self._page: Callable[[str], Page] = lru_cache(PAGES)(_page)

    def routes(self) -> list[web.RouteDef]:
        """What to add to the server of the status pages."""
        return [web.get("/playground", self._show)]

    async def _show(self, request: web.Request) -> web.Response:
        found = self._page(self._gateway or self._beside(request.headers.get("host", "")))
        return web.Response(text=found.html, content_type="text/html", headers=found.headers)

    def _beside(self, host: str) -> str:
        """Envoy's origin on this host; a host that is none stands for this machine."""
        found = _HOST.fullmatch(host)
        return f"http://{found[1] if found else '127.0.0.1'}:{self._envoy_port}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _page(gateway: str) -> Page:
    return page("playground", gateway=gateway)
