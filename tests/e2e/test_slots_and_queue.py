"""Every slot is used, none twice, and the queue is fair: over real Envoy and real llama-servers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.e2e.pool import shares
from tests.e2e.stack import CHAT, Stack, chat, until

pytestmark = shares("llama-servers")


QUIET_S = 9.0
"""Four pings."""


async def until_sum(stack: Stack, busy: int) -> None:
    """Wait until so many slots really work, wherever."""

    async def is_so() -> bool:
        return sum(await stack.busy()) == busy

    await until(is_so)


async def until_leased(stack: Stack, count: int) -> None:
    """Wait until the books hold so many leases; a leaving client's drains first."""
    await stack.until(lambda status: status["slots"]["leased"] == count)


async def sent_requests(stack: Stack) -> int:
    """How many requests Envoy has sent to servers so far."""
    name = "cluster.llama.upstream_rq_total"
    url = f"http://127.0.0.1:{stack.envoy_admin_port}/stats?filter=^{name}$"
    return int((await stack.client.get(url)).text.rpartition(":")[2])


async def test_six_slow_requests_take_all_six_slots_and_the_rest_keep_their_order(
    stack: Stack,
) -> None:
    held = await stack.fill()
    assert await stack.busy() == [2, 4]
    assert sorted(one.endpoint for one in held).count(stack.servers[0].address) == 2

    order: list[int] = []
    endpoints: list[str] = []

    async def wait_in_line(number: int) -> None:
        answer = await stack.ask()
        assert answer.status_code == 200
        order.append(number)
        endpoints.append(answer.headers["x-coxswain-endpoint"])

    waiting = []
    for number in range(7, 14):
        waiting.append(asyncio.create_task(wait_in_line(number)))
        await stack.until_waiting(len(waiting))
    assert await stack.busy() == [2, 4], "nobody may go to a full server"
    await held[0].leave()
    await asyncio.gather(*waiting)
    assert order == list(range(7, 14))
    assert set(endpoints) == {held[0].endpoint}, "only one slot was freed"


async def test_whom_the_queue_keeps_too_long_gets_504_and_no_slot(stack: Stack) -> None:
    held = await stack.fill()
    late = await stack.ask(headers={"x-coxswain-queue-timeout-ms": "300"})
    assert late.status_code == 504
    assert late.headers["x-coxswain-reason"] == "queue-timeout"
    await held[0].leave()
    await stack.until_busy([1, 4] if held[0].endpoint == stack.servers[0].address else [2, 3])
    await until_leased(stack, 5)


async def test_a_wait_of_zero_is_rejected_at_once(stack: Stack) -> None:
    await stack.fill()
    rejected = await stack.ask(headers={"x-coxswain-queue-timeout-ms": "0"})
    assert rejected.status_code == 504


async def test_an_impossible_wait_is_a_bad_request(stack: Stack) -> None:
    rejected = await stack.ask(headers={"x-coxswain-queue-timeout-ms": "-5"})
    assert rejected.status_code == 400
    assert rejected.json()["error"]["code"] == "bad-request"


async def test_a_client_that_leaves_the_queue_is_gone_and_reaches_no_server(stack: Stack) -> None:
    held = await stack.fill()
    before = await sent_requests(stack)
    leaving = asyncio.create_task(stack.ask(2000))
    await stack.until_waiting(1)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await stack.until_waiting(0)
    await held[0].leave()
    answer = await stack.ask()
    assert answer.status_code == 200
    assert await sent_requests(stack) == before + 1
    await until_sum(stack, 5)
    await until_leased(stack, 5)


async def test_a_client_that_leaves_midway_gives_its_slot_back(stack: Stack) -> None:
    held = await stack.fill()
    await held[3].leave()
    answer = await stack.ask()
    assert answer.headers["x-coxswain-endpoint"] == held[3].endpoint
    await until_sum(stack, 5)
    again = await stack.hold()
    assert again.endpoint == held[3].endpoint
    assert await stack.busy() == [2, 4]


async def test_leaving_an_unstreamed_answer_gives_the_slot_back_too(stack: Stack) -> None:
    """llama-server notices only after a second of silence, which the looks must leave it. A
    neighbour that streams leaves none (decision 0007), so there is none until all have noticed."""
    leaving = [asyncio.create_task(stack.ask(15_000)) for _ in range(6)]
    await stack.until(lambda status: status["running"] == 6)
    await stack.until_busy([2, 4])
    for one in leaving:
        one.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    await until_leased(stack, 0)
    assert await stack.busy() == [0, 0]
    held = await stack.fill()
    assert len(held) == 6
    assert await stack.busy() == [2, 4]


async def test_a_long_quiet_wait_outlives_the_pings_between_envoy_and_the_picker(
    tmp_path: Path,
) -> None:
    """gRPC's default takes Envoy's third ping on a quiet connection for abuse and cuts it."""
    async with Stack.running(tmp_path, slots=(1,), kind="simulator") as stack:
        held = await stack.hold()
        waiting = asyncio.create_task(stack.ask())
        await stack.until_waiting(1)
        await asyncio.sleep(QUIET_S)
        assert not waiting.done()
        await held.leave()
        answer = await waiting
        assert answer.status_code == 200
        assert int(answer.headers["x-coxswain-queue-ms"]) >= 1000 * QUIET_S


async def test_foreign_requests_are_seen_and_left_alone(stack: Stack) -> None:
    """A server that others fill directly gets nothing more from us."""
    small = stack.servers[0]
    async with httpx.AsyncClient(timeout=60) as stranger:
        tasks = [
            asyncio.create_task(stranger.post(f"http://{small.address}{CHAT}", json=chat(15_000)))
            for _ in range(2)
        ]
        await stack.until_foreign(small, 2)
        held = [await stack.hold() for _ in range(4)]
        assert {one.endpoint for one in held} == {stack.servers[1].address}
        rejected = await stack.ask(headers={"x-coxswain-queue-timeout-ms": "100"})
        assert rejected.status_code == 504
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    answer = await stack.ask()
    assert answer.headers["x-coxswain-endpoint"] == small.address
