"""Who goes first and who is rejected when slots are scarce: over real Envoy.

The servers are simulators: the test is about the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest_asyncio

from extproc.core.address import Address
from tests.e2e.conftest import QUICK
from tests.e2e.forked_children import ForkedChildren
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import CHAT, Held, Stack, chat
from tests.fakes.http_client import Client
from tests.fakes.wiretap import Wiretap
from tests.long_run import in_each_mode

pytestmark = shares("classes")

SETTINGS: dict[str, Any] = {
    **QUICK,
    "objectives": {
        "gold": {"criticality": "critical", "slo": {"queue_ms": 60_000}},
        "cheap": {"criticality": "sheddable"},
    },
    "queue": {"max_requests": 2, "timeout_s": 60},
}


@pytest_asyncio.fixture(loop_scope="session")
async def stack(mode: str, stacks: StackPool) -> AsyncIterator[Stack]:
    async with stacks.lend(slots=(1,), settings=SETTINGS, kind="simulator", mode=mode) as lent:
        yield lent


def ask_as(stack: Stack, objective: str, tenant: str = "") -> asyncio.Task[httpx.Response]:
    headers = {"x-gateway-inference-objective": objective}
    if tenant:
        headers["x-gateway-inference-fairness-id"] = tenant
    return asyncio.create_task(stack.ask(headers=headers))


def rejection(answer: httpx.Response) -> tuple[int, str]:
    """Status and reason, which the header and the body tell alike."""
    reason = answer.headers["x-coxswain-reason"]
    assert answer.json()["error"]["code"] == reason
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert answer.headers["access-control-allow-origin"] == "*", "a page can tell why"
    return answer.status_code, reason


async def free(held: Held, stack: Stack) -> None:
    await held.leave()
    await stack.until(lambda status: status["queue"]["queued"] == 0)


@in_each_mode
async def test_in_scarcity_the_lower_criticality_is_rejected_first(stack: Stack) -> None:
    held = await stack.hold()
    assert rejection(await ask_as(stack, "cheap")) == (429, "shed")
    older = ask_as(stack, "")
    await stack.until_waiting(1)
    newer = ask_as(stack, "")
    await stack.until_waiting(2)
    assert rejection(await ask_as(stack, "")) == (429, "queue-full")
    gold = [ask_as(stack, "gold")]
    assert rejection(await newer) == (429, "evicted")
    gold.append(ask_as(stack, "gold"))
    assert rejection(await older) == (429, "evicted")
    assert rejection(await ask_as(stack, "gold")) == (429, "queue-full")
    await free(held, stack)
    assert [(await one).status_code for one in gold] == [200, 200]


@in_each_mode
async def test_the_critical_one_goes_first(stack: Stack) -> None:
    held = await stack.hold()
    order: list[str] = []
    tasks = []
    for number, name in enumerate(("", "gold")):
        tasks.append(asyncio.create_task(note(ask_as(stack, name), name, order)))
        await stack.until_waiting(number + 1)
    await free(held, stack)
    await asyncio.gather(*tasks)
    assert order == ["gold", ""]


async def note(answer: asyncio.Task[httpx.Response], name: str, order: list[str]) -> None:
    assert (await answer).status_code == 200
    order.append(name)


@in_each_mode
async def test_a_crowd_does_not_hold_up_anothers_first(mode: str, stacks: StackPool) -> None:
    """Ten of one tenant wait; the one of another comes last, and goes first."""
    settings: dict[str, Any] = {**QUICK, "queue": {"timeout_s": 60}}
    async with stacks.lend(slots=(1,), settings=settings, kind="simulator", mode=mode) as stack:
        held = await stack.hold(headers={"x-gateway-inference-fairness-id": "crowd"})
        order: list[str] = []
        tasks = []
        for number, tenant in enumerate([*["crowd"] * 10, "other"]):
            tasks.append(asyncio.create_task(note(ask_as(stack, "", tenant), tenant, order)))
            await stack.until_waiting(number + 1)
        await held.leave()
        await asyncio.gather(*tasks)
        assert order.index("other") == 0


@in_each_mode
async def test_headers_for_the_picker_reach_no_server(mode: str, tmp_path: Path) -> None:
    """Nor does where it sends the request; what is the client's own does."""
    wishes = {
        "x-gateway-inference-objective": "gold",
        "x-gateway-inference-fairness-id": "tenant",
        "x-llm-d-inference-objective": "gold",
        "x-llm-d-inference-fairness-id": "tenant",
        "x-slo-ttft-ms": "60000",
        "x-coxswain-queue-timeout-ms": "60000",
    }
    own = {"x-session-id": "chat-7", "x-mine": "kept"}
    async with ForkedChildren(tmp_path) as children, Client(timeout=60) as client:
        stack = Stack(tmp_path, children, client)
        server = await stack.add_server(2, kind="simulator")
        async with Wiretap(Address("127.0.0.1", server.port)) as tap:
            server.port = tap.address.port
            await stack.start_picker(SETTINGS)
            await stack.start_envoy(mode)
            await stack.until_ready()
            answer = await client.post(stack.url(CHAT), json=chat(1), headers={**wishes, **own})
            assert answer.status_code == 200
            (heard,) = (one for one in tap.beginnings if b"x-mine" in one)
    head = heard.decode("latin-1").lower()
    assert "x-session-id: chat-7" in head
    for name in (*wishes, "x-gateway-destination-endpoint"):
        assert name not in head, name


async def test_fresh_names_beside_a_key_gain_nothing(tmp_path: Path) -> None:
    """Where Envoy checks keys: six requests, each under a name of its own, came before three of
    another key, whose turn comes as if they had none."""
    keys = tmp_path / "keys.txt"
    keys.write_text("cheat key-of-cheat\nhonest key-of-honest\n")
    settings = {"clients": {"keys_file": str(keys)}}
    asked_by = {name: {"authorization": f"Bearer key-of-{name}"} for name in ("cheat", "honest")}
    async with (
        ForkedChildren(tmp_path) as children,
        Client(timeout=60, headers=asked_by["honest"]) as client,
    ):
        stack = Stack(tmp_path, children, client)
        await stack.add_server(1, kind="simulator")
        await stack.start_picker(settings)
        await stack.start_envoy()
        await stack.until_ready()
        # A short request is charged like a long one until the picker knows how long they take.
        for _ in range(100):
            assert (await stack.ask()).status_code == 200
        held = await stack.hold(headers=asked_by["cheat"])
        order: list[str] = []
        tasks = []
        for number, name in enumerate([*["cheat"] * 6, *["honest"] * 3]):
            headers = {**asked_by[name], "x-gateway-inference-fairness-id": f"fresh {number}"}
            asked = asyncio.create_task(stack.ask(headers=headers))
            tasks.append(asyncio.create_task(note(asked, name, order)))
            await stack.until_waiting(number + 1)
        await held.leave()
        await asyncio.gather(*tasks)
        assert order[:4].count("honest") == 3, order
