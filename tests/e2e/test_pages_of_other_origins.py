"""A web page of another origin over the real Envoy, in a real browser, with a client's key.

Skipped where no Chromium is on the PATH.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from extproc.demo.port import LOOPBACK
from extproc.header_names import PREFLIGHT
from tests.docs.pages import page
from tests.e2e.conftest import QUICK
from tests.e2e.forked_children import ForkedChildren
from tests.e2e.stack import CHAT, Stack, until
from tests.fakes.browser import CHROMIUM, DRIVER, Browser, running_browser
from tests.fakes.http_client import Client

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.llama,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]

KEY = "sk-page"  # a test's
BEARER = {"authorization": f"Bearer {KEY}"}
ASKED_BY_BROWSERS = {
    "origin": "https://page.example",
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-request-id",
}

ASK = """
const [method, path, key, body, done] = [%r, %r, %r, %r, arguments[0]];
const headers = { "content-type": "application/json" };
if (key) headers.authorization = `Bearer ${key}`;
const request = { method, headers, body: body || undefined };
fetch(`http://127.0.0.1:%d${path}`, request).then(async (answer) => done({
  status: answer.status,
  reason: answer.headers.get("x-coxswain-reason"),
  retry: answer.headers.get("retry-after"),
  endpoint: answer.headers.get("x-coxswain-endpoint"),
  text: await answer.text(),
}), (error) => done(String(error)));
"""


@asynccontextmanager
async def page_of_another_origin(html: str) -> AsyncIterator[str]:
    """The address of a page that another server serves."""

    async def show(_: web.Request) -> web.Response:
        return web.Response(text=f"<!doctype html><body>{html}", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", show)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, 0).start()
        yield f"http://{LOOPBACK}:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def stack_with_key(folder: Path) -> AsyncIterator[Stack]:
    """A stack with one slot, for a client with a key."""
    keys = folder / "keys"
    keys.write_text(f"page {KEY}\n", encoding="ascii")
    settings = {**QUICK, "clients": {"keys_file": str(keys)}}
    async with ForkedChildren(folder) as children, Client(timeout=60, headers=BEARER) as client:
        stack = Stack(folder, children, client)
        await stack.add_server(1, start=False)
        await stack.boot(settings)
        yield stack


class Page:
    """A page of another origin in a browser; `ask` is its `fetch`."""

    def __init__(self, browser: Browser, stack: Stack) -> None:
        self._browser = browser
        self._stack = stack

    async def ask(self, method: str, path: str, body: str = "", key: str = KEY) -> dict[str, Any]:
        """What the page can read of the response; fails if the browser keeps it from the page."""
        script = ASK % (method, path, key, body, self._stack.envoy_port)
        read = await self._browser.call("POST", "execute/async", script=script, args=[])
        assert isinstance(read, dict), f"{method} {path}: {read}"
        return read


async def test_a_page_of_another_origin_uses_all_of_the_api(llama: None, tmp_path: Path) -> None:
    """With a key: the page of the docs waits in the queue and reads its stream; a page reads
    headers, rejections of the picker and of Envoy's routes, and one model. The preflights need no
    key, no server and no picker."""
    (html,) = (
        block.text
        for block in page("docs/routing.md").blocks()
        if block.language == "html" and "Bearer" in block.text
    )
    async with (
        stack_with_key(tmp_path) as stack,
        page_of_another_origin(
            html.replace("sk-...", KEY).replace("127.0.0.1:10000", f"127.0.0.1:{stack.envoy_port}")
        ) as documented,
        page_of_another_origin("a page") as other,
        running_browser() as browser,
    ):
        held = await stack.hold(headers=BEARER)
        await browser.open(documented)
        await browser.until("document.title === 'no. 1'")
        await held.leave()
        await browser.until("document.body.innerText.includes('data: [DONE]')")
        assert await browser.run("return document.title") == "it answers"

        await browser.open(other)
        asking = Page(browser, stack)
        models = stack.client.get(stack.url("/v1/models"), headers=BEARER)
        name = (await models).json()["data"][0]["id"]
        one = await asking.ask("GET", f"/v1/models/{name}")
        assert one["status"] == 200 and f'"id": "{name}"' in one["text"]
        answered = await asking.ask("POST", CHAT, '{"messages": [], "max_tokens": 1}')
        assert (answered["status"], bool(answered["endpoint"])) == (200, True)
        for method, path, key, status, reason in (
            ("GET", "/v1/models/nobody", KEY, 404, "model-not-found"),
            ("GET", "/v1/threads", KEY, 404, "unknown-path"),
            ("GET", "/slots", KEY, 403, "blocked-path"),
            ("DELETE", "/v1/stream?conv_id=none", KEY, 404, "conversation-not-found"),
            ("GET", "/props", "sk-other", 401, "invalid-api-key"),
            ("GET", "/queue/nobody", KEY, 404, "not-queued"),
            ("GET", "/queue/nobody", "", 401, "invalid-api-key"),
        ):
            read = await asking.ask(method, path, key=key)
            assert (read["status"], read["reason"]) == (status, reason), path

        await check_preflights(stack, f"http://{stack.servers[0].address}")
        await stack.kill(stack.servers[0].child)
        await stack.until(lambda status: status["slots"]["idle"] == 0)
        await check_preflights(stack)
        lost = await asking.ask("GET", "/props")
        assert lost["status"] == 503 and "UpstreamConnection" in lost["text"]

        await stack.kill(stack.picker)

        async def is_lost() -> bool:
            read = await asking.ask("POST", CHAT, "{}")
            assert (read["status"], read["retry"]) == (503, "1")
            return bool(read["reason"] == "picker-lost")

        await until(is_lost)
        assert (await asking.ask("GET", f"/v1/models/{name}"))["reason"] == "picker-lost"
        await check_preflights(stack)


async def check_preflights(stack: Stack, server: str | None = None) -> None:
    """They are answered for any path without a key, and as the server does, if there is one."""
    async with Client(timeout=60) as client:
        for path in (CHAT, "/v1/models", "/queue/any", "/slots", "/no/such/path"):
            ours = await client.options(stack.url(path), headers=ASKED_BY_BROWSERS)
            assert (ours.status_code, ours.content) == (200, b"")
            assert {name: ours.headers[name] for name in PREFLIGHT} == PREFLIGHT
            if server is not None:
                theirs = await client.options(f"{server}{path}", headers=ASKED_BY_BROWSERS)
                assert (theirs.status_code, theirs.content) == (200, b"")
                methods = "access-control-allow-methods"
                assert theirs.headers[methods] == ours.headers[methods]
                assert theirs.headers["access-control-allow-headers"] == "*"
