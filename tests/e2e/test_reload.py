"""A reload of what requests are resolved by, over the real Envoy, while requests run and wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.settings import Settings
from tests.e2e.one_process import Running, running
from tests.fakes.llama_server import FakeLlamaServer, Reply
from tests.fakes.picker import until

pytestmark = [pytest.mark.e2e]

COMPLETION = "/completion"
WEB = {"authorization": "Bearer sk-web"}


def ask(stack: Running, model: str) -> asyncio.Task[httpx.Response]:
    headers = WEB | {"x-gateway-model-name": model}
    return asyncio.create_task(stack.client.post(COMPLETION, headers=headers))


def with_these(stack: Running, **values: Any) -> Settings:
    """The settings in force with others in their place."""
    return Settings.model_validate(stack.settings.model_dump() | values)


async def test_models_and_limits_change_while_requests_run(tmp_path: Path) -> None:
    """Those that run or wait go on under the old names and without the new limits; later ones have
    the new ones."""
    keys = tmp_path / "keys"
    keys.write_text("web sk-web\n", encoding="ascii")
    async with FakeLlamaServer(busy=(False,)) as server:
        gate = asyncio.Event()
        server.replies[COMPLETION] = Reply(body=b"{}", gate=gate)
        values = {
            "endpoints": [str(server.address)],
            "clients": {"keys_file": str(keys)},
            "models": {"old": {"fake": 1}},
        }
        async with running(tmp_path, values) as stack:
            live, queue = stack.service.settings, stack.service.dispatcher.queue
            first = ask(stack, "old")
            await until(lambda: server.count(COMPLETION) == 1)
            second = ask(stack, "old")
            await until(lambda: len(queue) == 1)
            stack.settings = with_these(
                stack,
                models={"new": {"fake": 1}},
                routing={"model_match": "strict"},
                clients={"keys_file": str(keys), "limits": {"web": {"requests": 1}}},
                objectives={"gold": {"criticality": "critical", "models": ["new"]}},
            )
            reloaded = await live.reload(is_dry_run=False)
            assert reloaded.applied == (
                *("clients.limits", "models", "objectives", "routing.model_match"),
            )
            assert reloaded.needs_restart == ()
            third = ask(stack, "new")
            await until(lambda: len(queue) == 2)
            over = await ask(stack, "new")
            assert over.headers["x-coxswain-reason"] == "rate-limited"
            gate.set()
            assert [(await one).status_code for one in (first, second, third)] == [200] * 3
            unknown = await ask(stack, "old")
            assert unknown.headers["x-coxswain-reason"] == "model-not-found"
