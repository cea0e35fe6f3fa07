"""Several models on plain servers, told apart by what clients write: over real Envoy."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest_asyncio

from tests.e2e.conftest import QUICK
from tests.e2e.pool import StackPool, shares
from tests.e2e.stack import CHAT, Stack, chat
from tests.long_run import in_each_mode

pytestmark = shares("models")

SETTINGS: dict[str, Any] = {
    **QUICK,
    "models": {"both": {"tiny": 9, "small": 1}, "default": "small"},
    "routing": {"model_match": "strict"},
    "objectives": {
        "gold": {"criticality": "critical"},
        "cheap": {"criticality": "sheddable", "models": ["both"]},
    },
    "queue": {"max_requests": 0},
}
SPLIT_REQUESTS = 150


@pytest_asyncio.fixture(loop_scope="session")
async def stack(mode: str, stacks: StackPool) -> AsyncIterator[Stack]:
    """`tiny` with two slots and `small` with one; nobody may wait."""
    flags = (("--alias", "tiny"), ("--alias", "small"))
    async with stacks.lend(
        slots=(2, 1), flags=flags, kind="simulator", settings=SETTINGS, mode=mode
    ) as lent:
        yield lent


async def ask(stack: Stack, body: dict[str, Any], **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await stack.client.post(stack.url(CHAT), json=chat(1) | body, headers=named)


def reason(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.headers.get("x-coxswain-reason", "")


async def test_a_model_is_served_by_its_servers_alone(stack: Stack, mode: str) -> None:
    """Also where it stands behind a long prompt; what cannot be read is not guessed at."""
    tiny, small = (server.address for server in stack.servers)
    long = {"user": "x" * 100_000}
    wanted = [("tiny", tiny), ("small", small), ("default", small)] * 3
    for name, address in wanted:
        answer = await ask(stack, {"model": name})
        assert (answer.status_code, answer.headers["x-coxswain-endpoint"]) == (200, address)
        hinted = await ask(stack, long | {"model": name}, x_gateway_model_name=name)
        if name == "default" and mode == "gateway":  # cannot be changed, but harms no plain server
            assert hinted.status_code == 200
        assert hinted.headers["x-coxswain-endpoint"] == address
        behind = await ask(stack, long | {"model": name})
        if mode == "gateway":  # streams the body: its end is not here yet
            assert reason(behind) == (400, "bad-request")
            assert "x-gateway-model-name" in behind.json()["error"]["message"]
        else:
            assert (behind.status_code, behind.headers["x-coxswain-endpoint"]) == (200, address)
    assert reason(await ask(stack, {"model": "nobody"})) == (404, "model-not-found")
    listed = (await stack.client.get(stack.url("/v1/models"))).json()["data"]
    assert sorted(one["id"] for one in listed) == ["both", "default", "small", "tiny"]


@in_each_mode
async def test_a_split_follows_its_weights_and_classes_hold(stack: Stack) -> None:
    """Nine to one; and when all of a model's slots are busy, each class is told its own reason,
    while the other model's requests are served."""
    tiny, small = (server.address for server in stack.servers)
    served = Counter(
        [
            (await ask(stack, {"model": "both"})).headers["x-coxswain-endpoint"]
            for _ in range(SPLIT_REQUESTS)
        ]
    )
    # Fewer than 105 or all 150 to `tiny`: less than once in a million.
    assert 105 <= served[tiny] < SPLIT_REQUESTS and served.total() == SPLIT_REQUESTS

    async with asyncio.timeout(60):  # it is held for longer
        held = await stack.client.send(
            stack.client.build_request(
                "POST", stack.url(CHAT), json=chat(16_000, stream=True) | {"model": "small"}
            ),
            stream=True,
        )
        assert held.headers["x-coxswain-endpoint"] == small
        rejected = await ask(stack, {"model": "default"})
        assert reason(rejected) == (429, "queue-full")
        assert rejected.json()["error"]["code"] == "queue-full"
        assert int(rejected.headers["retry-after"]) >= 1
        gold = await ask(stack, {"model": "small"}, x_gateway_inference_objective="gold")
        assert reason(gold) == (429, "queue-full")
        cheap = await ask(stack, {"model": "small"}, x_gateway_inference_objective="cheap")
        assert reason(cheap) == (429, "shed")
        impatient = await ask(stack, {"model": "small"}, x_coxswain_queue_timeout_ms="0")
        assert reason(impatient) == (429, "queue-full")
        both = [await ask(stack, {"model": "both"}) for _ in range(SPLIT_REQUESTS)]
        assert {reason(answer) for answer in both} == {(200, ""), (429, "shed")}
        assert (await ask(stack, {"model": "tiny"})).status_code == 200
        await held.aclose()
