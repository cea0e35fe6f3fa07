"""What may be kept of the bodies of those who wait is bounded: over real Envoy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.stack import CHAT, Stack, chat
from tests.long_run import in_each_mode

pytestmark = [pytest.mark.e2e]

MIB = 1024 * 1024


@in_each_mode
async def test_long_bodies_wait_up_to_the_bytes_that_are_set(mode: str, tmp_path: Path) -> None:
    """Two of 4 MiB fit, also one that is longer than what is kept of it; short ones still do."""
    settings = {**QUICK, "queue": {"max_body_bytes": 9 * MIB}}
    async with Stack.running(
        tmp_path, slots=(1,), kind="simulator", settings=settings, mode=mode
    ) as stack:

        async def ask(padding_bytes: int) -> httpx.Response:
            body = chat(1) | {"padding": "x" * padding_bytes}
            return await stack.client.post(stack.url(CHAT), json=body)

        held = await stack.hold()
        long = []
        for number, padding_bytes in enumerate((4 * MIB - 500, 5 * MIB), start=1):
            long.append(asyncio.create_task(ask(padding_bytes)))
            await stack.until_waiting(number)
        kept = (await stack.status())["queue"]["body_bytes"]
        assert 8 * MIB - 500 <= kept <= 9 * MIB
        rejected = await ask(2 * MIB)
        assert rejected.status_code == 429
        assert rejected.headers["x-coxswain-reason"] == "queue-full"
        assert "queue.max_body_bytes" in rejected.json()["error"]["message"]
        short = asyncio.create_task(ask(60_000))
        await stack.until_waiting(3)
        await held.leave()
        assert {(await one).status_code for one in (*long, short)} == {200}
        assert (await stack.status())["queue"]["body_bytes"] == 0
