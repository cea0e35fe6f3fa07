"""The countdown over real Envoy: a web page asks where its request stands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.e2e.stack import CHAT, Stack, chat

pytestmark = pytest.mark.e2e

STREAM = {"accept": "text/event-stream"}
ONE_AT_A_TIME = {"queue": {"timeout_s": 30}}


async def test_a_web_page_watches_its_request(mode: str, tmp_path: Path) -> None:
    """The third of three sees itself move up until it is served; others see nothing."""
    async with Stack.running(
        tmp_path, slots=(1,), settings=ONE_AT_A_TIME, kind="simulator", mode=mode
    ) as stack:
        calls = []
        for number in range(4):
            headers = {"x-request-id": f"page-{number}"}
            calls.append(asyncio.create_task(stack.ask(60, headers=headers)))
            if number:
                await stack.until_waiting(number)
        asked = await stack.client.get(stack.url("/queue/page-3"))
        assert (asked.status_code, asked.json()["position"]) == (200, 3)
        async with stack.client.stream("GET", stack.url("/queue/page-3"), headers=STREAM) as answer:
            told = [
                json.loads(line.removeprefix("data: "))
                async for line in answer.aiter_lines()
                if line.startswith("data: ")
            ]
        positions = [one["position"] for one in told if one["state"] == "waiting"]
        assert positions == sorted(positions, reverse=True) and positions[0] == 3
        assert told[-1] == {"state": "over"}
        answers = [await call for call in calls]
        assert [one.status_code for one in answers] == [200] * 4
        assert int(answers[3].headers["x-coxswain-queue-ms"]) > 0
        for path in ("/queue/page-3", "/queue/unknown", "/queue/", "/queue/%2e%2e/status"):
            assert (await stack.client.get(stack.url(path))).status_code == 404, path


async def test_ids_that_clients_did_not_send_are_random(tmp_path: Path) -> None:
    """Envoy names each such request by a random UUID, told only with its answer."""
    async with Stack.running(tmp_path, slots=(2,), kind="simulator") as stack:
        answers = [await stack.client.post(stack.url(CHAT), json=chat(1)) for _ in range(20)]
        ids = [answer.headers["x-request-id"] for answer in answers]
        assert len(set(ids)) == 20
        # Two of the 32 digits are fixed by the format, one tells why it was traced.
        free = [id_.replace("-", "")[:12] + id_.replace("-", "")[17:] for id_ in ids]
        assert all(len({id_[place] for id_ in free}) > 1 for place in range(len(free[0])))
