"""What happens when a part dies: over real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from extproc.demo.port import free_port
from tests.e2e.conftest import QUICK
from tests.e2e.stack import Held, Server, Stack, until
from tests.long_run import in_each_mode

pytestmark = [pytest.mark.e2e]


@pytest.fixture
def stack(own_stack: Stack) -> Stack:
    """Each test kills or stops something of it."""
    return own_stack


async def is_steered(stack: Stack) -> bool:
    """Whether Envoy asks the picker again."""
    return "x-coxswain-endpoint" in (await stack.ask()).headers


@in_each_mode
async def test_a_server_that_dies_breaks_its_clients_alone_and_is_used_again(stack: Stack) -> None:
    """Then the picker goes: it rejects who waits, and lets who runs finish."""
    small, large = stack.servers
    await lose_midway(stack, small, large)
    await stack.leave_all()
    await stack.start_server(small)
    held = await stack.fill()
    assert await stack.busy() == [2, 4]
    assert len(held) == 6
    await leave_by_sigterm(stack, held)


async def lose_midway(stack: Stack, small: Server, large: Server) -> None:
    held = await stack.fill()
    await stack.kill(small.child)
    for one in held:
        if one.endpoint == small.address:
            with pytest.raises(httpx.TransportError):
                await one.read_on()
    answers = []
    first, *others = (one for one in held if one.endpoint == large.address)
    for one in others:
        await one.leave()
        answers.append(await stack.ask())
    assert {answer.headers["x-coxswain-endpoint"] for answer in answers} == {large.address}
    assert [answer.status_code for answer in answers] == [200] * 3
    assert await first.next_chunk()


async def leave_by_sigterm(stack: Stack, held: list[Held]) -> None:
    waiting = asyncio.create_task(stack.ask())
    await stack.until_waiting(1)
    assert stack.picker is not None
    stack.terminate(stack.picker)
    rejected = await waiting
    assert rejected.status_code == 503
    assert rejected.headers["x-coxswain-reason"] == "shutting-down"
    assert await held[0].next_chunk()
    for one in held:
        await one.leave()
    assert await stack.picker.wait() == 0


async def test_a_server_dead_at_the_pick_costs_a_fallback_and_the_books_stay_right(
    llama: None, tmp_path: Path
) -> None:
    """Looks are rare here, so the picker learns of the death from Envoy. Of two requests at once
    one is for the dead server; requests one after the other may all be for the living one."""
    settings = {"scraper": {"slow_interval_s": 60.0, "stale_after_s": 240.0}}
    async with Stack.running(tmp_path, slots=(1, 1), settings=settings) as stack:
        dead, alive = stack.servers
        await stack.kill(dead.child)
        answers: list[httpx.Response] = []
        async with asyncio.timeout(60):
            while "2" not in {answer.headers["x-coxswain-attempts"] for answer in answers}:
                answers += await asyncio.gather(stack.ask(), stack.ask())
        answers += [await stack.ask() for _ in range(6)]
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["x-coxswain-endpoint"] for answer in answers} == {alive.address}
        tried = [int(answer.headers["x-coxswain-attempts"]) for answer in answers]
        assert sum(count > 1 for count in tried) == 1, "a dead server is tried once, not again"
        held = await stack.hold()
        assert held.endpoint == alive.address
        rejected = await stack.ask(headers={"x-coxswain-queue-timeout-ms": "200"})
        assert rejected.status_code == 504, "the only living slot is taken, and known to be"


@pytest.mark.parametrize("mode", ["discovery"])
async def test_the_picker_killed_leaves_envoy_serving(stack: Stack) -> None:
    """In full duplex running answers are cut (0043); for the rest see test_picker_lost.py."""
    held = await stack.hold()
    await stack.kill(stack.picker)
    assert await held.next_chunk(), "running streams go on"
    for _ in range(3):
        answer = await stack.ask()
        assert answer.status_code == 200
        assert "x-coxswain-endpoint" not in answer.headers
    blocked = await stack.client.get(stack.url("/slots"))
    assert blocked.status_code == 403
    assert blocked.headers["x-coxswain-reason"] == "blocked-path"

    await stack.restart_picker()
    await until(lambda: is_steered(stack))
    await stack.until(
        lambda status: sum(one["slots"]["foreign"] for one in status["endpoints"].values()) == 1
    )
    free = [await stack.hold() for _ in range(5)]
    assert {one.response.status_code for one in free} == {200}
    assert await stack.busy() == [2, 4], "the stream of the time before is counted"
    assert await held.next_chunk()


async def test_without_endpoints_requests_wait_for_the_first(llama: None, tmp_path: Path) -> None:
    port = free_port()
    settings = {**QUICK, "endpoints": [f"127.0.0.1:{port}"]}
    async with Stack.running(tmp_path, slots=(), settings=settings) as stack:
        waiting = asyncio.create_task(stack.ask())
        await stack.until_waiting(1)
        server = await stack.add_server(2, port=port)
        answer = await waiting
        assert answer.status_code == 200
        assert answer.headers["x-coxswain-endpoint"] == server.address
        assert int(answer.headers["x-coxswain-queue-ms"]) > 0
