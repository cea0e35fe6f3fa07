"""A real Chromium, driven through chromedriver (W3C WebDriver over HTTP)."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from extproc.demo.port import free_port
from tests.fakes.patience import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")

UNTIL = """
const [condition, done] = arguments;
const isSo = new Function(`return (${condition})`);
const check = () => { if (isSo()) { observer.disconnect(); done(true); return true; } };
const observer = new MutationObserver(check);
const what = { subtree: true, childList: true, characterData: true, attributes: true };
if (!check()) observer.observe(document, what);
"""


class Browser:
    """One window. Raises `BrowserError` for what the browser cannot do."""

    def __init__(self, client: httpx.AsyncClient, session: str) -> None:
        self._client = client
        self._session = session

    async def call(self, method: str, path: str, **body: Any) -> Any:
        return await _call(self._client, method, f"/session/{self._session}/{path}", **body)

    async def open(self, url: str) -> None:
        await self.call("POST", "url", url=url)

    async def run(self, script: str) -> Any:
        """What the script returns."""
        return await self.call("POST", "execute/sync", script=script, args=[])

    async def until(self, condition: str) -> None:
        """Wait until the JavaScript expression is true: it is asked after each change of the page.
        Fails after a minute with what the page shows then."""
        try:
            await self.call("POST", "execute/async", script=UNTIL, args=[condition])
        except BrowserError as error:
            text = await self.run("return document.body.innerText")
            raise AssertionError(f"never so: {condition}\n{error}\n{text}") from None

    async def text(self, selector: str) -> str:
        return str(await self.run(f"return document.querySelector('{selector}').innerText"))

    async def click(self, selector: str) -> None:
        await self.call("POST", f"element/{await self._element(selector)}/click")

    async def type(self, selector: str, text: str) -> None:
        await self.call("POST", f"element/{await self._element(selector)}/value", text=text)

    async def accept(self) -> None:
        """Say yes to what the page asks."""
        await self.call("POST", "alert/accept")

    async def show(self, width: int, *, is_dark: bool = False, height: int = 900) -> None:
        """The window's width in pixels, and the reader's preference."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self._cdp("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self._cdp("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self) -> bytes:
        """The whole page as PNG."""
        shot = await self._cdp("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    async def _cdp(self, command: str, **parameters: Any) -> Any:
        return await self.call("POST", "goog/cdp/execute", cmd=command, params=parameters)

    async def _element(self, selector: str) -> str:
        found = await self.call("POST", "element", using="css selector", value=selector)
        return str(next(iter(found.values())))


class BrowserError(Exception):
    """The browser's own words."""


async def _call(client: httpx.AsyncClient, method: str, path: str, **body: Any) -> Any:
    answer = await client.request(method, path, json=None if method == "DELETE" else body)
    value = answer.json()["value"]
    if answer.status_code != 200:
        raise BrowserError(value["message"])
    return value


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A browser with nothing open."""
    assert CHROMIUM is not None and DRIVER is not None
    port = free_port()
    driver = await asyncio.create_subprocess_exec(
        *(DRIVER, f"--port={port}"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(
            base_url=url, timeout=2 * PATIENCE_S, trust_env=False
        ) as client:
            session = await _session(client)
            try:
                yield Browser(client, session)
            finally:
                await _call(client, "DELETE", f"/session/{session}")
    finally:
        driver.terminate()
        await driver.wait()


async def _session(client: httpx.AsyncClient) -> str:
    wanted = {
        "goog:chromeOptions": {"binary": CHROMIUM, "args": list(FLAGS)},
        "timeouts": {"script": int(1000 * PATIENCE_S)},
    }
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                made = await _call(client, "POST", "/session", capabilities={"alwaysMatch": wanted})
                return str(made["sessionId"])
            except httpx.ConnectError:  # it does not listen yet
                await asyncio.sleep(0.05)
