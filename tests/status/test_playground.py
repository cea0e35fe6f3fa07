"""Claims about extproc/status/playground.py. What a browser makes of it is in
tests/e2e/test_playground.py."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

import httpx
import pytest
from aiohttp import web

from extproc.status.playground import Playground


async def shown(subject: Playground, host: str) -> httpx.Response:
    """The page as a browser gets it that asked for this host."""
    app = web.Application()
    app.add_routes(subject.routes())
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/playground"
        async with httpx.AsyncClient(trust_env=False) as client:
            return await client.get(url, headers={"host": host})
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("gateway_url", "host", "gateway"),
    [
        (None, "localhost:9090", "http://localhost:10000"),
        (None, "gpu-1.example.com", "http://gpu-1.example.com:10000"),
        (None, "[::1]:9090", "http://[::1]:10000"),
        (None, "a;script-src:9090", "http://127.0.0.1:10000"),
        ("https://llm.example.com/v1?x", "localhost:9090", "https://llm.example.com"),
        ("http://user:word@10.0.0.5:8000", "localhost", "http://10.0.0.5:8000"),
    ],
)
async def test_the_page_may_ask_itself_and_envoy(
    gateway_url: str | None, host: str, gateway: str
) -> None:
    """On the host by which it was reached, or where the settings say; and nobody else."""
    found = await shown(Playground(gateway_url, 10_000), host)
    assert f'<meta name="gateway" content="{gateway}">' in found.text
    policy = found.headers["content-security-policy"].split("; ")
    assert f"connect-src 'self' {gateway}" in policy and "default-src 'none'" in policy


async def test_what_a_server_answers_never_becomes_markup() -> None:
    """The policy names the page's own style and script, which makes no markup of text and keeps
    nothing."""
    found = await shown(Playground(None, 10_000), "localhost")
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", found.text, flags=re.DOTALL)
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in found.headers["content-security-policy"]
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|\.href", text)
        assert not re.search(r"localStorage|sessionStorage|document\.cookie|indexedDB", text)
    assert not re.search(r"\s(?:on\w+|style)=", found.text)
