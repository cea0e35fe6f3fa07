"""A reload of what requests are resolved by, over the real Envoy, while requests run and wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from extproc.admin.dependencies import ReloadError
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


PIN = """
from extproc.rules.v1 import Endpoint, Reject, Request, Rule

class Pin(Rule):
    def filter(self, request: Request, endpoint: Endpoint) -> bool | str:
        return request.fairness_id != "clinic" or endpoint.labels["region"] == "REGION"

    def admit(self, request: Request) -> Reject | None:
        return Reject("ask elsewhere") if request.fairness_id == "nobody" else None
"""


async def test_rules_hold_for_what_runs_and_waits(tmp_path: Path) -> None:
    """No server that a rule excludes gets a request, with or without a slot; a reload moves what
    waits; a wrong rule changes nothing."""

    async def send(path: str, tenant: str) -> httpx.Response:
        headers = WEB | {"x-gateway-inference-fairness-id": tenant}
        return await stack.client.post(path, headers=headers, json={"prompt": "row"})

    file = tmp_path / "pin.py"
    file.write_text(PIN.replace("REGION", "eu"), encoding="utf-8")
    async with FakeLlamaServer(busy=(False,)) as eu, FakeLlamaServer(busy=(False,)) as us:
        gates = [asyncio.Event(), asyncio.Event()]
        for server, gate in zip((eu, us), gates, strict=True):
            server.replies[COMPLETION] = Reply(body=b"{}", gate=gate)
            server.replies["/tokenize"] = Reply(body=b"{}")
        values = {
            "endpoints": [
                {"address": str(eu.address), "labels": {"region": "eu"}},
                {"address": str(us.address), "labels": {"region": "us"}},
            ],
            "routing": {"rules": ["pin:Pin"], "rules_folder": str(tmp_path)},
        }
        async with running(tmp_path, values) as stack:
            queue = stack.service.dispatcher.queue
            await stack.until_seen(eu.address)
            await stack.until_seen(us.address)
            rejected = await send(COMPLETION, "nobody")
            assert rejected.status_code == 403 and "retry-after" not in rejected.headers
            assert rejected.headers["x-coxswain-reason"] == "rejected-by-rule"
            assert rejected.json()["error"]["message"] == "ask elsewhere"
            for _ in range(10):
                assert (await send("/tokenize", "clinic")).status_code == 200
            assert (eu.count("/tokenize"), us.count("/tokenize")) == (10, 0)

            first = asyncio.create_task(send(COMPLETION, "clinic"))
            await until(lambda: eu.count(COMPLETION) == 1)
            second = asyncio.create_task(send(COMPLETION, "clinic"))
            await until(lambda: len(queue) == 1)
            other = asyncio.create_task(send(COMPLETION, "anybody"))
            await until(lambda: us.count(COMPLETION) == 1)
            gates[1].set()
            assert (await other).status_code == 200 and len(queue) == 1

            file.write_text(PIN.replace('== "REGION"', "in ()").replace("bool", "x"))
            with pytest.raises(ReloadError, match="pin cannot be imported: NameError"):
                await stack.service.settings.reload(is_dry_run=False)
            assert len(queue) == 1
            file.write_text(PIN.replace("REGION", "us"), encoding="utf-8")
            reloaded = await stack.service.settings.reload(is_dry_run=False)
            assert reloaded.applied == ("routing.rules",)
            await until(lambda: us.count(COMPLETION) == 2)
            gates[0].set()
            answers = [await first, await second]
            assert [one.headers["x-coxswain-endpoint"] for one in answers] == [
                str(eu.address),
                str(us.address),
            ]


async def test_bounds_hold_while_clients_leave_and_limits_change(tmp_path: Path) -> None:
    """Requests above a bound wait beside idle slots, and get its reason where its queue is full;
    places come back from clients that left, and a reload gives more."""
    async with FakeLlamaServer(busy=(False,) * 8) as server:
        gate = asyncio.Event()
        server.replies[COMPLETION] = Reply(body=b"{}", gate=gate)
        server.replies["/v1/embeddings"] = Reply(body=b"{}")
        bounds = {"paths": {COMPLETION: {"running": 2, "queued": 2}}}
        values = {"endpoints": [str(server.address)], "bounds": bounds}
        async with running(tmp_path, values) as stack:
            dispatcher = stack.service.dispatcher
            (bound,) = dispatcher.view.bounds

            def send() -> asyncio.Task[httpx.Response]:
                return asyncio.create_task(stack.client.post(COMPLETION, json={"prompt": "row"}))

            running_ones = [send(), send()]
            await until(lambda: server.count(COMPLETION) == 2)
            waiting = [send(), send()]
            await until(lambda: bound.queued == 2)
            full = await send()
            assert full.status_code == 429 and int(full.headers["retry-after"]) >= 1
            assert full.headers["x-coxswain-reason"] == "bound-reached"
            assert "path /completion" in full.json()["error"]["message"]
            other = await stack.client.post("/v1/embeddings", json={"input": "row"})
            assert other.status_code == 200

            waiting.pop().cancel()
            await until(lambda: bound.queued == 1)
            running_ones.pop().cancel()
            await until(lambda: server.count(COMPLETION) == 3)
            assert (bound.running, bound.queued) == (2, 0)
            waiting += [send(), send()]
            await until(lambda: bound.queued == 2)
            stack.settings = with_these(stack, bounds={"paths": {COMPLETION: {"running": 3}}})
            reloaded = await stack.service.settings.reload(is_dry_run=False)
            assert reloaded.applied == ("bounds.paths",)
            await until(lambda: server.count(COMPLETION) == 4)
            assert (bound.running, bound.queued) == (3, 1)
            gate.set()
            answers = [await one for one in (*running_ones, *waiting)]
            assert [one.status_code for one in answers] == [200] * 4
            await until(lambda: (bound.running, bound.queued) == (0, 0))
            assert dispatcher.faults(0.0) == []
