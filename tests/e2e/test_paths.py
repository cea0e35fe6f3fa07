"""Claims about paths: what llama-server serves to users works through Envoy, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from extproc.header_names import PREFLIGHT, READABLE
from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, CONTEXT_TOKENS, READY_S, Stack, chat
from tests.fakes import quick_yaml

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("llama")]

PAGE = {
    "index.html": "<script type=module src=./_app/immutable/bundle.Dz0tER.js></script>",
    "_app/immutable/bundle.Dz0tER.js": "row()",
    "_app/immutable/assets/bundle.x1y2.css": "body {}",
    "_app/version.json": "{}",
    "manifest.webmanifest": "{}",
    "sw.js": "1",
    "workbox-1a2b.js": "2",
    "pwa-64x64.png": "png",
    "favicon.ico": "ico",
    "recommended-mcp/exa.ico": "ico",
}
"""The names of llama-server's own page, which the one that is built here has not in it."""


@asynccontextmanager
async def serving(
    folder: Path, flags: tuple[str | Path, ...], settings: dict[str, Any], mode: str = "discovery"
) -> AsyncIterator[Stack]:
    """A stack whose one server, of one slot, has these flags."""
    endpoints = folder / "endpoints.json"
    endpoints.write_text(json.dumps({"endpoints": []}))
    settings = {**settings, "discovery": {"file": str(endpoints)}}
    alter = without_closed_routes if mode == "gateway" else str
    async with Stack.running(folder, slots=(), settings=settings, mode=mode, alter=alter) as stack:
        server = await stack.add_server(1, flags=flags, start=False)
        server.child = await stack.children.start("prefixed", server.command)
        endpoints.write_text(json.dumps({"endpoints": [server.address]}))
        url = stack.url(f"{settings.get('routing', {}).get('path_prefix', '')}/props")

        async def is_served() -> bool:
            answer = await stack.client.get(url)
            return answer.status_code == 200 and "x-coxswain-endpoint" in answer.headers

        await server.child.wait_ready(is_served, timeout_s=READY_S)
        await stack.until(lambda status: _is_ready(status, server.address))
        yield stack


def without_closed_routes(config: str) -> str:
    """A gateway's routes, which know nothing of llama-server: only the picker rejects."""
    document = quick_yaml.load(config)
    (chain,) = document["static_resources"]["listeners"][0]["filter_chains"]
    (host,) = chain["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
    host["routes"] = [route for route in host["routes"] if "direct_response" not in route]
    return quick_yaml.dump(document)


def _is_ready(status: dict[str, Any], address: str) -> bool:
    return bool(status["endpoints"].get(address, {}).get("health") == "ready")


async def test_the_web_page_works_and_what_is_for_nobody_is_rejected(
    tmp_path: Path, mode: str
) -> None:
    """In gateway mode behind routes that leave everything to the picker."""
    page = tmp_path / "page"
    for name, content in PAGE.items():
        (page / name).parent.mkdir(parents=True, exist_ok=True)
        (page / name).write_text(content)
    async with serving(tmp_path, ("--webui", "--path", page), QUICK, mode) as stack:
        get, url = stack.client.get, stack.url
        assert (await get(url("/"))).text == PAGE["index.html"]
        for name, content in PAGE.items():
            answer = await get(url(f"/{name}?v=1"))
            assert (answer.status_code, answer.text) == (200, content), name
        assert (await get(url("/props"))).json()["total_slots"] == 1
        preflight = await stack.client.options(url(CHAT))
        assert (preflight.status_code, preflight.content) == (200, b"")
        assert PREFLIGHT.items() <= preflight.headers.items()
        (model,) = (await get(url("/v1/models"))).json()["data"]
        assert (await get(url(f"/v1/models/{quote(model['id'], safe='')}"))).json() == model
        assert (await stack.ask(2)).json()["usage"]["completion_tokens"] == 2
        for method, path in (
            *(("GET", "/tools"), ("GET", "/slots"), ("POST", "/props")),
            *(("POST", f"/llama{CHAT}"), ("GET", "/lora-adapters"), ("GET", "/v1/models/x")),
        ):
            answer = await stack.client.request(method, url(path), json={})
            status, code = {
                f"/llama{CHAT}": (404, "unknown-path"),
                "/v1/models/x": (404, "model_not_found"),
            }.get(path, (403, "blocked-path"))
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
            assert answer.headers["x-coxswain-reason"] == code.replace("_", "-")
            assert READABLE.items() <= answer.headers.items()


async def test_a_prefix_of_the_servers_is_no_way_past_the_queue(tmp_path: Path, mode: str) -> None:
    """What takes a slot below it takes one of ours, and waits when there is none."""
    settings = {
        **QUICK,
        "scraper": {**QUICK["scraper"], "path_prefix": "/llama"},
        "routing": {"path_prefix": "/llama"},
    }
    async with serving(tmp_path, ("--api-prefix", "/llama"), settings, mode) as stack:
        url = stack.url(f"/llama{CHAT}")
        body = chat(CONTEXT_TOKENS - 200, stream=True)  # outlasts the test
        async with stack.client.stream("POST", url, json=body) as first:
            assert first.status_code == 200, (first.headers, await first.aread())
            assert first.headers["x-coxswain-endpoint"]
            assert (await stack.status())["slots"]["leased"] == 1
            hurried = {"x-coxswain-queue-timeout-ms": "0"}
            rejected = await stack.client.post(url, json=chat(1), headers=hurried)
            assert rejected.json()["error"]["code"] == "queue-timeout"
        assert (await stack.client.get(stack.url("/llama/v1/models"))).json()["data"]
        assert (await stack.client.get(stack.url("/llama/slots"))).status_code == 403
