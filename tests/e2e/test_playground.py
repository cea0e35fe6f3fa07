"""The playground in a real browser, over real Envoy and a real llama-server. Skipped where no
Chromium is on the PATH."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.forked_children import ForkedChildren
from tests.e2e.stack import Stack
from tests.fakes.browser import CHROMIUM, DRIVER, Browser, running_browser
from tests.fakes.http_client import Client

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.llama,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium and chromedriver"),
]

KEY = "sk-playground"  # a test's
BEARER = {"authorization": f"Bearer {KEY}"}


async def cached_share(browser: Browser) -> int:
    """The share of the prompt that was cached, as it is shown, in percent."""
    found = re.search("tokens, (\\d+)\u00a0%\u00a0cached", await browser.text("#cached"))
    assert found is not None
    return int(found[1])


async def test_a_prompt_waits_and_streams(llama: None, tmp_path: Path) -> None:
    """Its place in the queue, its server and the cached share are shown; the key is forgotten."""
    keys = tmp_path / "keys"
    keys.write_text(f"page {KEY}\n", encoding="ascii")
    settings = {**QUICK, "clients": {"keys_file": str(keys)}}
    async with (
        ForkedChildren(tmp_path) as children,
        Client(timeout=60, headers=BEARER) as client,
        running_browser() as browser,
    ):
        stack = Stack(tmp_path, children, client)
        await stack.add_server(1, start=False, flags=("--alias", "small", "--ignore-eos"))
        await stack.boot(settings)
        await browser.open(f"http://127.0.0.1:{stack.http_port}/playground")
        await browser.until("!document.getElementById('key-part').hidden")
        assert await browser.run("return document.getElementById('model').length") == 0
        await browser.type("#key", KEY)
        await browser.run("document.getElementById('key').dispatchEvent(new Event('change'))")
        await browser.until("document.getElementById('model').value === 'small'")

        held = await stack.hold(headers=BEARER)
        await browser.run("document.getElementById('tokens').value = 24")
        await browser.type("#prompt", "Who steers? " * 30)
        await browser.click("#send")
        await browser.until("document.getElementById('place').textContent.includes('place 1 of 1')")
        await held.leave()
        await browser.until("document.getElementById('state').textContent === 'done'")
        shown = await browser.text("#result dl")
        assert stack.servers[0].address in shown and "its slot was the first" in shown
        assert "24 tokens, " in shown and "\u00a0a\u00a0second" in shown
        assert await browser.text("#answer")
        before = await cached_share(browser)

        await stack.until(lambda status: status["slots"]["idle"] == 1)
        await browser.click("#send")  # the same again, which the server has in its cache
        await browser.until("document.getElementById('state').textContent === 'done'")
        await browser.until("document.getElementById('why').textContent.includes('a free slot')")
        assert await cached_share(browser) > before

        held = await stack.hold(headers=BEARER)
        await browser.click("#send")
        await stack.until_waiting(1)
        await browser.click("#stop")
        await browser.until("document.getElementById('state').textContent === 'stopped'")
        await stack.until_waiting(0)
        await held.leave()

        for width in (1280, 768, 360):
            await browser.show(width)
            widest = await browser.run("return document.documentElement.scrollWidth")
            assert widest <= width
        kept = "return localStorage.length + sessionStorage.length + document.cookie.length"
        assert await browser.run(kept) == 0
        await browser.open(f"http://127.0.0.1:{stack.http_port}/playground")
        await browser.until("!document.getElementById('key-part').hidden")
        assert await browser.run("return document.getElementById('key').value") == ""

        await browser.type("#key", "sk-wrong")
        await browser.type("#prompt", "row")
        await browser.until("document.getElementById('failure').textContent.includes('not valid')")
        await browser.click("#send")
        await browser.until("document.getElementById('failure').textContent.includes('401')")
        assert "invalid-api-key" in await browser.text("#failure")
