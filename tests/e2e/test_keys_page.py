"""The page of clients' keys in a real browser, over real Envoy. Skipped where no Chromium is on the
PATH."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.one_process import running
from tests.fakes.browser import CHROMIUM, DRIVER, running_browser
from tests.fakes.llama_server import FakeLlamaServer
from tests.fakes.picker import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]

TOKEN = "keys-page-token"  # a test's
WEB = {"authorization": "Bearer sk-web"}


async def test_the_page_shows_what_runs_and_what_is_spent(tmp_path: Path) -> None:
    """To who has the token; at any width; and also when a key is added or revoked meanwhile."""
    keys, token = tmp_path / "keys", tmp_path / "token"
    keys.write_text("web sk-web expires=2999-12-31\nbatch sk-batch\n", encoding="ascii")
    token.write_text(TOKEN, encoding="ascii")
    limit = {"budgets": {"daily": {"tokens": 1000}}, "models": ["<img src=x onerror=alert(1)>"]}
    async with FakeLlamaServer(busy=(True,)) as server, running_browser() as browser:
        values = {
            "endpoints": [str(server.address)],
            "admin": {"token_file": str(token)},
            "clients": {"keys_file": str(keys), "limits": {"batch": limit}},
            "usage": {"path": str(tmp_path / "usage.db")},
        }
        async with running(tmp_path, values) as stack:
            waiting = asyncio.create_task(
                stack.client.post("/completion", json={"prompt": "row"}, headers=WEB)
            )
            await until(lambda: len(stack.service.dispatcher.queue) == 1)
            await browser.open(f"http://127.0.0.1:{stack.service.http_port}/")
            await browser.until("!document.getElementById('keys').hidden")
            await browser.click("#keys")
            await browser.type("#token", "wrong")
            await browser.click("#operator button")
            note = "document.getElementById('operator-note').textContent"
            await browser.until(f"{note}.includes('not valid')")
            assert await browser.run("return document.querySelectorAll('.client').length") == 0
            await browser.type("#token", TOKEN)
            await browser.click("#operator button")
            await browser.until("document.querySelectorAll('.client').length === 2")
            await browser.until("document.getElementById('live').textContent === 'live'")
            text = await browser.text("#clients")
            assert "0 running, 1 queued" in text and "expires 3000-01-01 00:00 UTC" in text
            assert "0 of 1,000 tokens" in text and "<img src=x" in text
            assert "sk-" not in await browser.run("return document.body.innerText")
            for width in (1280, 768, 360):
                await browser.show(width)
                widest = await browser.run("return document.documentElement.scrollWidth")
                assert widest <= width
            keys.write_text("web sk-web\n", encoding="ascii")
            await browser.until("document.querySelectorAll('.client').length === 1")
            assert "does not expire" in await browser.text("#clients")
            waiting.cancel()
            await asyncio.wait({waiting})
