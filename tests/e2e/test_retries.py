"""What Envoy tries again, and where: over real Envoy, with servers of different models."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, Stack, chat

pytestmark = [pytest.mark.e2e]

MODELS = ("steers", "rows", "rows")


async def test_a_retry_stays_within_the_model(tmp_path: Path) -> None:
    """The only server of a model dies, and its endpoint is still listed: a server of another model
    would answer, with that model. Where another server has the model, the retry goes there."""
    flags = tuple(("--alias", model) for model in MODELS)
    async with Stack.running(
        tmp_path, slots=(2, 2, 2), kind="simulator", flags=flags, settings=QUICK
    ) as stack:
        only, first, second = stack.servers
        await stack.kill(only.child)
        await stack.kill(first.child)
        headers = {"x-coxswain-queue-timeout-ms": "100"}
        for _ in range(3):
            body = chat(1) | {"model": "steers"}
            answer = await stack.client.post(stack.url(CHAT), json=body, headers=headers)
            assert answer.status_code in {502, 503, 504}, answer.text
        answer = await stack.client.post(stack.url(CHAT), json=chat(1) | {"model": "rows"})
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-coxswain-endpoint"] == second.address


async def test_without_fallbacks_no_other_server_is_tried(tmp_path: Path) -> None:
    """The only server with a free slot dies, and its endpoint is still listed. Envoy alone would
    try the others, which are full."""
    settings = {"scraper": {"slow_interval_s": 5}, "picker": {"fallbacks": 0}}
    async with Stack.running(
        tmp_path, slots=(1, 1, 1), kind="simulator", settings=settings
    ) as stack:
        held = {(await stack.hold()).endpoint for _ in range(2)}
        (dead,) = (one for one in stack.servers if one.address not in held)
        await stack.kill(dead.child)
        answer = await stack.ask()
        assert answer.status_code == 503, answer.text
        assert answer.headers["x-coxswain-endpoint"] == dead.address
