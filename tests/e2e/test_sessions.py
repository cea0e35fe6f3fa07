"""Conversations that their clients name, through a real Envoy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.stack import CHAT, Stack, chat

pytestmark = pytest.mark.e2e


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with Stack.running(tmp_path, slots=(2, 2, 2), kind="simulator") as running:
        yield running


async def test_a_session_stays_with_its_server(stack: Stack) -> None:
    """Beside bodies that are read: twelve prompts that have nothing in common, short and long,
    would meet one of three servers by chance once in a hundred thousand times. Where its server
    is full, it goes elsewhere at once."""

    async def server_of(number: int) -> str:
        body = chat(1, content=f"{number} oars " * (1 + 200 * (number % 2)))
        answer = await stack.client.post(
            stack.url(CHAT), json=body, headers={"x-session-id": "crew"}
        )
        assert answer.status_code == 200, answer.text
        return answer.headers["x-coxswain-endpoint"]

    (home,) = {await server_of(number) for number in range(12)}
    held = [await stack.hold() for _ in range(6)]
    for one in held:
        if one.endpoint != home:
            await one.leave()
    await stack.until(
        lambda status: all(
            endpoint["slots"]["leased"] == (2 if address == home else 0)
            for address, endpoint in status["endpoints"].items()
        )
    )
    assert home not in {await server_of(number) for number in range(6)}
