"""Claims about extproc/app/pages/keys.py and its page, of a started service.

What a browser makes of it is in tests/e2e/test_keys_page.py.
"""

from __future__ import annotations

import asyncio
import re
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.app.pages import keys
from extproc.app.pages.keys import HOURS
from extproc.app.service import Service
from extproc.settings import Settings
from extproc.usage.counts import HOUR_S, UsageCounts, UsageKey
from extproc.usage.store import UsageError, UsageStore

TOKEN = "pages-token"  # a test's
BEARER = {"authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def pages(folder: Path, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the status port of a service without endpoints."""
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    anywhere = dict.fromkeys(("grpc", "admin", "http"), "127.0.0.1:0")
    made_of = {"listen": anywhere, "admin": {"token_file": str(token)}, "drain_timeout_s": 0.0}
    service = Service(Settings.model_validate({**made_of, **settings}))
    await service.start()
    try:
        url = f"http://127.0.0.1:{service.http_port}"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            yield client
    finally:
        await service.stop()


def settings_of(folder: Path) -> dict[str, Any]:
    """Three clients, of which one has a budget, and books of which it has spent something."""
    file, books = folder / "keys", folder / "usage.db"
    file.write_text(
        "web sk-1\nweb sk-2 expires=2999-12-31\nbatch sk-3\nover sk-4 expires=2020-01-01\n"
    )
    hour = int(time.time()) // HOUR_S * HOUR_S
    store = UsageStore(books)
    counts = UsageCounts(requests=2, prompt_tokens=30, cached_tokens=5, generated_tokens=10, cost=2)
    store.add({(hour, UsageKey("batch", "", "tiny")): counts})
    store.close()
    budgets = {"daily": {"tokens": 100}, "monthly": {"cost": 4}}
    limits = {
        "batch": {"budgets": budgets, "models": ["tiny"], "requests": 3, "requests_per_session": 2}
    }
    return {
        "clients": {"keys_file": str(file), "limits": limits},
        "usage": {"path": str(books)},
    }


async def test_the_page_is_open_and_has_no_data(tmp_path: Path) -> None:
    """It says by hashes which style and script are its own."""
    async with pages(tmp_path, **settings_of(tmp_path)) as client:
        shown = await client.get("/keys")
    assert shown.status_code == 200 and "batch" not in shown.text
    policy = shown.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", shown.text, flags=re.DOTALL)
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|\.href", text)
    assert not re.search(r"\s(?:on\w+|style)=", shown.text)


async def test_the_data_is_for_operators(tmp_path: Path) -> None:
    """As actions are."""
    async with pages(tmp_path, **settings_of(tmp_path)) as client:
        for headers in ({}, {"authorization": "Bearer sk-1"}, {"authorization": TOKEN}):
            answer = await client.get("/keys.json", headers=headers)
            assert answer.status_code == 401 and "not valid" in answer.json()["error"]
    async with pages(tmp_path, **settings_of(tmp_path), admin={}) as client:
        answer = await client.get("/keys.json", headers=BEARER)
        assert answer.status_code == 403 and "clients" not in answer.json()


async def test_what_each_client_may_and_has_spent(tmp_path: Path) -> None:
    """Those who have spent most come first. No key is in it, nor one that has expired."""
    async with pages(tmp_path, **settings_of(tmp_path)) as client:
        answer = await client.get("/keys.json", headers=BEARER)
    found = answer.json()
    assert (found["checks_keys"], found["counts_usage"], found["total"]) == (True, True, 2)
    batch, web = found["clients"]
    assert (batch["client"], web["client"]) == ("batch", "web")
    assert "sk-" not in answer.text and len(web["keys"]) == 2
    assert sorted(key["expires"] is None for key in web["keys"]) == [False, True]
    spent = {"requests": 2, "tokens": 40, "cached_tokens": 5, "cost": 2.0}
    assert batch["day"] == spent | {"max_tokens": 100, "max_cost": None}
    assert batch["month"] == spent | {"max_tokens": None, "max_cost": 4.0}
    assert sum(batch["hours"]) == 40 and len(batch["hours"]) == HOURS and not any(web["hours"])
    assert (batch["models"], batch["objectives"], web["models"]) == (["tiny"], None, None)
    assert batch["limits"] == {
        "requests": 3,
        "queued": None,
        "requests_per_session": 2,
        "requests_per_flow": None,
        "tokens_per_minute": None,
    }
    assert (batch["running"], batch["queued"]) == (0, 0)
    assert found["now"] < found["day_ends"] <= found["month_ends"]


async def test_without_keys_or_books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says what is missing; of many clients it has the first."""
    async with pages(tmp_path) as client:
        found = (await client.get("/keys.json", headers=BEARER)).json()
    assert (found["checks_keys"], found["counts_usage"], found["clients"]) == (False, False, [])
    monkeypatch.setattr(keys, "MAX_CLIENTS", 1)
    async with pages(tmp_path, **settings_of(tmp_path)) as client:
        found = (await client.get("/keys.json", headers=BEARER)).json()
        assert found["total"] == 2 and len(found["clients"]) == 1

        def fail(*_: object) -> None:
            raise UsageError("no disk")

        monkeypatch.setattr(UsageStore, "hours", fail)
        answer = await client.get("/keys.json", headers=BEARER)
        assert answer.status_code == 503 and answer.json() == {"error": "no disk"}
    await asyncio.sleep(0)
