"""Servers that fail what passes while /health and /slots look fine, behind real Envoy.

`make nightly` makes the failing servers fail for 25 s.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, Server, Stack, chat, until
from tests.fakes.faulty_server import POISON
from tests.long_run import IS_LONG_RUN, in_long_run

pytestmark = pytest.mark.e2e

LOAD = 0.7
SERVICE_S = 0.1
SLOTS = 4
ROUNDS = 28


async def set_fault(stack: Stack, server: Server, fault: str) -> None:
    answer = await stack.client.post(f"http://{server.address}/fault", content=fault)
    assert answer.status_code == 200


def is_running(server: Server) -> bool:
    return server.child is not None and server.child.is_running


async def post(stack: Stack, body: dict[str, Any]) -> int:
    """Its status, 0 for a connection that ended."""
    try:
        return (await stack.client.post(stack.url(CHAT), json=body)).status_code
    except httpx.TransportError:
        return 0


async def offer(
    stack: Stack, servers: int, seconds: float, *, is_same: bool, **more: str
) -> list[int]:
    """As many requests as 0.7 of what these servers could serve in so many seconds, one after
    another at a steady pace, whether or not those before were answered."""
    pace = LOAD * servers * SLOTS / SERVICE_S
    began_at = time.monotonic()
    asking = []
    for number in range(round(pace * seconds)):
        await asyncio.sleep(max(0.0, began_at + number / pace - time.monotonic()))
        content = "row" if is_same else f"row {number}"
        asking.append(asyncio.create_task(post(stack, chat(1, content=content) | more)))
    return list(await asyncio.gather(*asking))


def failed(statuses: list[int]) -> int:
    return sum(status != 200 for status in statuses)


@pytest.mark.parametrize(
    ("servers", "fault", "is_same"),
    [
        (2, "error", False),
        pytest.param(2, "reset", True, marks=in_long_run),
        pytest.param(4, "reset", False, marks=in_long_run),
    ],
)
async def test_a_failing_server_is_found_out_and_comes_back(
    servers: int, fault: str, is_same: bool, tmp_path: Path
) -> None:
    """It fails at once, and so would attract everything."""
    async with Stack.running(
        tmp_path, slots=(SLOTS,) * servers, settings=QUICK, kind="faulty"
    ) as stack:
        bad = stack.servers[0]
        await set_fault(stack, bad, fault)
        first = await offer(stack, servers, 5.0, is_same=is_same)
        assert failed(first) <= 0.05 * len(first), f"{failed(first)} of {len(first)}"
        endpoint = (await stack.status())["endpoints"][bad.address]
        assert endpoint["issues"][0]["code"] == "ejected", endpoint
        assert stack.picker is not None
        assert f"endpoint {bad.address}: ejected: " in stack.picker.log.read_text()
        if IS_LONG_RUN:
            first += await offer(stack, servers, 5.0, is_same=is_same)
            later = await offer(stack, servers, 15.0, is_same=is_same)
            assert failed(first) <= 0.05 * len(first), f"{failed(first)} of {len(first)}"
            assert failed(later) <= 0.01 * len(later), f"{failed(later)} of {len(later)}"
        await set_fault(stack, bad, "none")

        async def is_back() -> bool:
            await post(stack, chat(1))
            return not (await stack.status())["endpoints"][bad.address]["issues"]

        await until(is_back)
        held = await stack.fill()
        assert {one.endpoint for one in held} == {server.address for server in stack.servers}


async def test_a_server_that_fails_one_kind_of_request_stays(tmp_path: Path) -> None:
    """Its failures come at once, the others' answers take their time; still it is no outlier."""
    async with Stack.running(
        tmp_path, slots=(SLOTS, SLOTS), settings=QUICK, kind="faulty"
    ) as stack:
        bad = stack.servers[0]
        await set_fault(stack, bad, "grammar")
        plain, with_grammar = [], []
        for number in range(ROUNDS):
            asked = [chat(1, content=f"row {number}, {each}") for each in range(4)]
            asked[2] |= {"grammar": "g"}
            asked[3] |= {"grammar": "g"}
            # All are awaited: what fails at once cannot fail often before another kind works.
            answered = await asyncio.gather(*(post(stack, each) for each in asked))
            plain += answered[:2]
            with_grammar += answered[2:]
        assert failed(plain) == 0
        assert failed(with_grammar) > 0, "or nothing was tested"
        metrics = (await stack.client.get(f"http://127.0.0.1:{stack.http_port}/metrics")).text
        assert "coxswain_endpoint_ejections_total{" not in metrics


async def test_a_poison_request_costs_two_servers_and_its_client_gets_an_error(
    tmp_path: Path,
) -> None:
    """However often its client sends it again."""
    async with Stack.running(tmp_path, slots=(1, 1, 1, 1), settings=QUICK, kind="faulty") as stack:
        for server in stack.servers:
            await set_fault(stack, server, "poison")
        poison = chat(1, content=POISON)
        answers = [await stack.client.post(stack.url(CHAT), json=poison) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [502] * 5
        reasons = [answer.headers["x-coxswain-reason"] for answer in answers]
        assert reasons == ["server-lost"] * 2 + ["poison-request"] * 3
        for answer in answers:
            assert answer.json()["error"]["code"] == answer.headers["x-coxswain-reason"]

        async def have_two_ended() -> bool:
            """A process is seen to end after its connections do."""
            return [is_running(server) for server in stack.servers].count(False) >= 2

        await until(have_two_ended)
        assert await post(stack, chat(1)) == 200
        assert [is_running(server) for server in stack.servers].count(True) == 2
