"""What the keys of clients may use and spend, over real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.forked_children import ForkedChildren
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.fakes.http_client import Client

pytestmark = [pytest.mark.e2e, pytest.mark.llama, pytest.mark.timeout(600)]

BUDGET = 300
LIMITS = {
    "web": {
        "models": ["small"],
        "objectives": ["batch"],
        "budgets": {"daily": {"tokens": BUDGET}, "monthly": {"tokens": 10**9}},
    },
}
WEB, FREE = ({"authorization": f"Bearer key-of-{name}"} for name in ("web", "free"))


@asynccontextmanager
async def running(folder: Path, fronts: int) -> AsyncIterator[Stack]:
    """A server of the model `small` and one of `large`, and two clients, one of them with
    limits."""
    keys = folder / "keys"
    keys.write_text("".join(f"{name} key-of-{name}\n" for name in ("web", "free")))
    settings: dict[str, Any] = {
        **QUICK,
        "fronts": fronts,
        "clients": {"keys_file": str(keys), "limits": LIMITS},
        "objectives": {"batch": {}, "chat": {"criticality": "critical"}},
        "usage": {"path": str(folder / "usage.db")},
    }
    async with (
        ForkedChildren(folder) as children,
        Client(timeout=60, headers=FREE) as client,
    ):
        stack = Stack(folder, children, client)
        for name in ("small", "large"):
            await stack.add_server(2, start=False, flags=("--alias", name))
        await stack.boot(settings)
        yield stack


async def ask(stack: Stack, tokens: int, headers: dict[str, str], **more: Any) -> httpx.Response:
    return await stack.client.post(stack.url(CHAT), json={**chat(tokens), **more}, headers=headers)


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("fronts", [0, 1])
async def test_what_a_key_may_use_and_spend(llama: None, tmp_path: Path, fronts: int) -> None:
    """Its models, its objectives and its budget; also after the picker was killed."""
    async with running(tmp_path, fronts) as stack:
        models = await stack.client.get(stack.url("/v1/models"), headers=WEB)
        assert [each["id"] for each in models.json()["data"]] == ["small"]
        models = await stack.client.get(stack.url("/v1/models"))
        assert [each["id"] for each in models.json()["data"]] == ["small", "large"]

        denied = await ask(stack, 1, WEB, model="large")
        assert error_of(denied) == (404, "model_not_found")
        assert "do not have access" in denied.json()["error"]["message"]
        assert error_of(await ask(stack, 1, WEB)) == (400, "bad-request")
        chatting = {**WEB, "x-gateway-inference-objective": "chat"}
        denied = await ask(stack, 1, chatting, model="small")
        assert error_of(denied) == (403, "objective-not-allowed")

        answer = await ask(stack, BUDGET, WEB, model="small")
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == "small"

        async def is_used_up() -> bool:
            nonlocal answer
            answer = await ask(stack, 1, WEB, model="small")
            return error_of_429(answer) == "insufficient_quota"

        await until(is_used_up)
        assert answer.headers["x-coxswain-reason"] == "budget-used-up"
        assert answer.headers["x-should-retry"] == "false"
        assert 0 < int(answer.headers["retry-after"]) <= 86_402
        error = answer.json()["error"]
        assert error["type"] == "insufficient_quota"
        assert f"{BUDGET} tokens a day, by UTC" in error["message"]
        assert (await ask(stack, 1, FREE, model="large")).status_code == 200

        async def is_saved() -> bool:
            return await asyncio.to_thread(saved, tmp_path / "usage.db") >= BUDGET

        await until(is_saved)
        await stack.kill(stack.picker)
        await stack.restart_picker()
        await stack.until_ready()
        assert error_of_429(await ask(stack, 1, WEB, model="small")) == "insufficient_quota"
        assert (await ask(stack, 1, FREE, model="small")).status_code == 200


def error_of_429(answer: httpx.Response) -> str:
    """The code of a rejection by a limit; empty if it is none."""
    return answer.json()["error"]["code"] if answer.status_code == 429 else ""


def saved(path: Path) -> int:
    """The tokens of the client in the file."""
    with sqlite3.connect(path) as file:
        query = "SELECT TOTAL(prompt_tokens + generated_tokens) FROM usage WHERE client = 'web'"
        (tokens,) = file.execute(query).fetchone()
    file.close()
    return int(tokens)
