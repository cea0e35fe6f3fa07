"""Claims about the dashboard, in a real browser. Skipped where no Chromium is on the PATH."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from extproc.status import StatusServer, StatusSources

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
MARKUP = '<img src=x onerror="document.title=1"><script>document.title=1</script>'

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH"),
]


def status(**changes: Any) -> dict[str, Any]:
    """A picker with one endpoint whose every name is markup."""
    slots = {"total": 5, "leased": 2, "foreign": 1, "idle": 1, "unusable": 1}
    endpoint = {
        "name": MARKUP,
        "health": "degraded",
        "intent": "draining",
        "is_removed": False,
        "is_known_to_envoy": True,
        "is_fresh": True,
        "slots": slots,
        "models": [MARKUP, "second", "third"],
        "observed_age_s": 0.5,
        "issues": [{"code": "slow-slots", "message": MARKUP, "remedy": MARKUP}],
    }
    queue = {
        "queued": 3,
        "max_requests": 9,
        "by_criticality": {"critical": 1, "standard": 2, "sheddable": 0},
        "longest_wait_s": 12.3,
        "expected_s": None,
    }
    return {
        "version": "1.2.3",
        "uptime_s": 3700.0,
        "not_ready": [MARKUP],
        "problems": [MARKUP],
        "slots": slots,
        "endpoints": {"10.0.0.1:8080": endpoint},
        "queue": queue,
        "running": 2,
        "exchanges": 7,
        "envoys": [],
        "outcomes": {"served": 3, MARKUP: 1},
        **changes,
    }


async def seen(told: object, tmp_path: Path) -> str:
    """The page as Chromium has it after three seconds of its own time."""

    async def metrics() -> bytes:
        return b""

    def tell() -> dict[str, Any]:
        if isinstance(told, Exception):
            raise told
        assert isinstance(told, dict)
        return told

    server = StatusServer(
        StatusSources(status=tell, obstacles=lambda: (), metrics=metrics),
    )
    port = await server.start("127.0.0.1", 0)
    assert CHROMIUM is not None
    browser = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"),
        *("--virtual-time-budget=3000", "--dump-dom", f"http://127.0.0.1:{port}/"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        out, _ = await browser.communicate()
    finally:
        await server.stop()
    page = out.decode()
    return page[: page.index("<script>")] if "<script>" in page else page


def text_of(page: str, id_: str) -> str:
    found = re.search(rf'id="{id_}"[^>]*>([^<]*)<', page)
    assert found is not None, id_
    return found[1]


async def test_what_is_reported_is_shown_as_text(tmp_path: Path) -> None:
    """The numbers stand where they belong, and markup in names stays the text that it is."""
    page = await seen(status(), tmp_path)
    assert text_of(page, "live") == "live" and text_of(page, "slots-busy") == "3"
    assert text_of(page, "longest") == "12 s" and text_of(page, "expected") == "not known yet"
    assert text_of(page, "classes") == "1 critical, 2 standard"
    assert 'aria-label="2 leased, 1 foreign, 1 idle, 1 unusable of 5 slots"' in page
    assert "draining" in page and "3/5" in page and " +1<" in page
    assert "<title>(3) Coxswain</title>" in page, "no script of a name ran"
    assert "<img" not in page and page.count("&lt;img src=x") >= 7


async def test_a_picker_that_fails_is_said_plainly(tmp_path: Path) -> None:
    """In words, and for screen readers as an alert."""
    page = await seen(RuntimeError("on purpose"), tmp_path)
    assert text_of(page, "live") == "no answer"
    assert "error (500)" in text_of(page, "stale-what")
    alert = re.search(r'<div class="notice bad" id="stale" role="alert"([^>]*)>', page)
    assert alert is not None and "hidden" not in alert[1]
