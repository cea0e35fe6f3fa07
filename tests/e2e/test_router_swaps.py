"""llama.cpp's router with memory for one of two models, which Coxswain loads and unloads."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.e2e.kept import models_by_machine
from tests.e2e.routed import RoutedStack, routed
from tests.e2e.stack import CHAT, chat, until
from tests.e2e.test_swaps import LONG_TOKENS

pytestmark = [pytest.mark.e2e, pytest.mark.llama]

MODELS = ("small", "large")


async def test_models_take_turns_on_a_router_and_no_answer_is_killed(
    llama: None, tmp_path: Path
) -> None:
    """The router alone makes the second model wait for as long as clients keep the first one busy,
    and an unload kills a running answer after ten seconds."""
    settings = {"swap": {"max_wait_s": 1.0}, "queue": {"timeout_s": 120}}
    async with routed(tmp_path, MODELS, settings) as fleet:
        fleet.check("large", await fleet.ask("large"))
        listed = (await fleet.stack.client.get(fleet.stack.url("/v1/models"))).json()["data"]
        assert sorted(one["id"] for one in listed) == sorted(MODELS)
        is_over = asyncio.Event()
        busy = [asyncio.create_task(keep_busy(fleet, is_over)) for _ in range(2)]
        try:
            async with asyncio.timeout(60):
                fleet.check("small", await fleet.ask("small"))
        finally:
            is_over.set()
        assert sum(await asyncio.gather(*busy)) > 0

        await an_unload_waits_for_the_answer(fleet)
        await a_router_that_is_killed_heals(fleet)


async def test_a_router_loads_models_for_its_pool(llama: None, tmp_path: Path) -> None:
    """Where each of two pools has one with the same models, a request loads its model in its own
    pool, and is served there."""
    pools = {
        "chat": {"default": True},
        "batch": {"header": {"name": "x-team", "value": "batch"}},
    }
    settings = {"pools": pools, "queue": {"timeout_s": 120}}
    async with routed(tmp_path, MODELS, settings, routers=2, in_pools=tuple(pools)) as fleet:
        stack = fleet.stack
        body = {**chat(4), "model": "small"}
        answer = await stack.client.post(stack.url(CHAT), json=body, headers={"x-team": "batch"})
        fleet.check("small", answer)
        assert answer.headers["x-coxswain-endpoint"] == stack.servers[1].address
        assert await states(fleet, "small") == ["unloaded", "loaded"]
        fleet.check("large", await fleet.ask("large"))
        assert await states(fleet, "small") == ["unloaded", "loaded"]
        assert await states(fleet, "large") == ["loaded", "unloaded"]


async def states(fleet: RoutedStack, model: str) -> list[str]:
    """The state of a model on each router."""
    models = models_by_machine(await fleet.stack.status())
    return [models[one.address][model]["state"] for one in fleet.stack.servers]


async def keep_busy(fleet: RoutedStack, is_over: asyncio.Event) -> int:
    """One answer after another, as long as the other model waits; how many."""
    count = 0
    while not is_over.is_set():
        fleet.check("large", await fleet.ask("large", 60), 60)
        count += 1
    return count


async def an_unload_waits_for_the_answer(fleet: RoutedStack) -> None:
    fleet.check("large", await fleet.ask("large"))
    body = {**chat(LONG_TOKENS, stream=True), "model": "large"}
    async with fleet.stack.client.stream("POST", fleet.stack.url(CHAT), json=body) as held:
        lines = held.aiter_lines()
        await anext(lines)
        await fleet.unload("large")
        await fleet.until_state(large="unloading")
        text = "".join([line async for line in lines])
    assert text.endswith("data: [DONE]"), "the whole answer"
    await fleet.until_state(large="unloaded")


async def a_router_that_is_killed_heals(fleet: RoutedStack) -> None:
    """Its models end with it; a new one has none, and loads what is asked for."""
    fleet.check("small", await fleet.ask("small"))
    (server,) = fleet.stack.servers
    await fleet.stack.kill(server.child)
    await fleet.stack.start_server(server)

    async def is_answered() -> bool:
        try:
            answer = await fleet.ask("small")
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK

    await until(is_answered)
