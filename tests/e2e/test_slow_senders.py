"""Many clients that send slowly, beside one that does not: over real Envoy."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.conftest import QUICK
from tests.e2e.stack import Stack
from tests.e2e.test_uploads import SOME_BYTES, Upload, large
from tests.long_run import IS_LONG_RUN, in_long_run

pytestmark = [pytest.mark.e2e]

SENDERS = 400 if IS_LONG_RUN else 30
HONEST = 10
PAUSE_S = 0.5
"""Before a sender that was refused comes again: the machine has others to serve."""


class SlowSenders:
    """Each sends the first part of its body, then next to nothing, and comes again when it is
    refused. `outcomes` counts what they are told."""

    def __init__(self, stack: Stack, count: int, first_bytes: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.begun = 0
        self._stack = stack
        self._first_bytes = first_bytes
        self._tasks = [asyncio.create_task(self._send()) for _ in range(count)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            try:
                async with Upload.to(self._stack, large()) as upload:
                    await upload.send(self._first_bytes)
                    self.begun += 1
                    _, head = await upload.trickle()
                reason = head.partition(b"x-coxswain-reason: ")[2].partition(b"\r\n")[0]
                self.outcomes[reason.decode()] += 1
            except (ConnectionError, asyncio.IncompleteReadError):
                self.outcomes["closed"] += 1  # refused while its first part was on the way
            await asyncio.sleep(PAUSE_S)


@pytest.mark.parametrize("first_bytes", [30_000, pytest.param(SOME_BYTES, marks=in_long_run)])
async def test_slow_senders_cost_the_others_nothing(first_bytes: int, tmp_path: Path) -> None:
    """Those whose first part is not here are in no queue. Of the others a few get a slot and lose
    it; then they get one slot of four at most and stand in nobody's way."""
    settings = {**QUICK, "envoy": {"body_buffer_bytes": 65_536}}
    async with Stack.running(tmp_path, slots=(2, 2), kind="simulator", settings=settings) as stack:
        senders = SlowSenders(stack, SENDERS, first_bytes)
        while senders.begun < SENDERS:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        try:
            for _ in range(HONEST):
                assert (await stack.ask()).status_code == 200
            if first_bytes < SOME_BYTES:
                assert not senders.outcomes
                assert (await stack.status())["queue"]["queued"] == 0
            else:
                assert senders.outcomes["shed"] >= SENDERS - 10
                assert senders.outcomes["upload-stalled"] <= 10
        finally:
            await senders.stop()


async def test_slow_senders_cost_the_others_little_where_bodies_are_not_read(
    tmp_path: Path,
) -> None:
    """Each gets a slot by its headers until some have wasted too much; from then on bodies are
    waited for, and who is queued without one is sent away. An honest client that is among these
    is served when it comes again."""
    settings = {
        **QUICK,
        "routing": {"read_body": "never"},
        "envoy": {"body_buffer_bytes": 65_536, "request_body_grace_s": 0.5},
    }
    async with Stack.running(tmp_path, slots=(2, 2), kind="simulator", settings=settings) as stack:
        senders = SlowSenders(stack, 400 if IS_LONG_RUN else 60, 30_000)
        while senders.begun < 60:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        try:
            refused = 0
            for _ in range(HONEST if IS_LONG_RUN else 5):
                answer = await stack.ask()
                while answer.status_code == 429:
                    refused += 1
                    answer = await stack.ask()
                assert answer.status_code == 200
            assert refused <= 2
            assert senders.outcomes["upload-stalled"] <= 20
        finally:
            await senders.stop()
