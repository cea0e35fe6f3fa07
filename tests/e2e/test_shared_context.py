"""Mixed load above capacity on real llama-servers that were started plainly: nobody is killed.

Each request fits alone, but not with three others (docs/decisions/0214-what-an-overflow-does.md).
Killed ones are counted at the servers, by their logs, and at the clients. Prompts and answers have
lengths that the picker is not given: the model ends about half of the answers by itself.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from extproc.demo.model import ModelShape
from tests.e2e.stack import CHAT, Server, Stack
from tests.long_run import IS_LONG_RUN

pytestmark = [pytest.mark.e2e, pytest.mark.llama]

CONTEXTS_TOKENS = (2_048, 8_192)
CLIENTS = 16
"""Twice the slots; foreign ones come beside them."""
LONG_S = 600.0
REQUESTS = 80
KILLS = 8
"""The control goes on until so many of its clients' requests were killed."""
MOST_REQUESTS = 2_000
MAX_PROMPT_CHARS = 1_300
"""The tiny model has a token for each byte, and its template adds a few."""
KILLED = "Context size has been exceeded."
LEAVING = 1 / 3
MOST_OF_WARM_UP = 100


class Load:
    """Clients that send one request after the other. `outcomes` counts how they ended."""

    def __init__(
        self, stack: Stack, random: Random, is_over: Callable[[int, Counter[str]], bool]
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        self.problems: list[str] = []
        self._stack = stack
        self._random = random
        self._is_over = is_over
        self._sent = 0

    async def run(self) -> None:
        through = [asyncio.create_task(self._client()) for _ in range(CLIENTS)]
        foreign = [asyncio.create_task(self._foreign(server)) for server in self._stack.servers]
        await asyncio.gather(*through)
        for task in foreign:
            task.cancel()
        await asyncio.gather(*foreign, return_exceptions=True)

    async def _client(self) -> None:
        while not self._is_over(self._sent, self.outcomes):
            self._sent += 1
            body = self._body(self._random.lognormvariate(5.5, 0.9))
            leaves_after_s = None
            if self._random.random() < LEAVING:
                leaves_after_s = self._random.uniform(0.02, 0.5)
            outcome = await self._ask(self._stack.url(CHAT), body, leaves_after_s)
            self.outcomes[outcome] += 1

    async def _foreign(self, server: Server) -> None:
        """Small requests that bypass the picker, one at a time and not always."""
        while True:
            await asyncio.sleep(self._random.uniform(0.1, 0.5))
            body = self._body(self._random.uniform(20, 60)) | {"max_tokens": 40}
            outcome = await self._ask(f"http://{server.address}{CHAT}", body, None)
            self.outcomes[f"foreign {outcome}"] += 1

    def _body(self, chars: float) -> dict[str, Any]:
        """A third has an answer of a known length, a third one that ends before its bound, and a
        third has no bound at all."""
        random = self._random
        words = [str(random.randrange(10**6)) for _ in range(200)]
        text = " ".join(words)[: min(MAX_PROMPT_CHARS, 10 + int(chars))]
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": text}],
            "stream": random.random() < 0.5,
            "seed": random.randrange(10**6),
        }
        kind = random.randrange(3)
        if kind == 0:
            body |= {"max_tokens": random.randrange(20, 400), "ignore_eos": True}
        elif kind == 1:
            body |= {"max_tokens": 600}
        return body

    async def _ask(self, url: str, body: dict[str, Any], leaves_after_s: float | None) -> str:
        try:
            async with asyncio.timeout(leaves_after_s):
                answer = await self._stack.client.post(url, json=body)
        except TimeoutError:
            return "left"
        except httpx.TransportError as error:
            self.problems.append(repr(error))
            return "broken"
        if KILLED in answer.text:
            return "killed"
        if answer.status_code != 200 or "error" in json.dumps(_last_event(answer.text)):
            self.problems.append(f"{answer.status_code} {answer.text[-300:]}")
            return "failed"
        return "answered"


def _last_event(text: str) -> object:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    return lines[-1] if lines else ""


async def play(folder: Path, context: str) -> tuple[Counter[str], int, list[str]]:
    """Run the load; returns how requests ended, how many tasks the servers killed by their logs,
    and what else went wrong."""
    shapes = (ModelShape(),) * len(CONTEXTS_TOKENS)
    async with Stack.running(
        folder, shared_tokens=CONTEXTS_TOKENS, context=context, shapes=shapes
    ) as stack:
        ends_at = time.monotonic() + LONG_S

        def is_over(sent: int, outcomes: Counter[str]) -> bool:
            if context == "per_slot":
                return outcomes["killed"] >= KILLS or sent >= MOST_REQUESTS
            return time.monotonic() > ends_at if IS_LONG_RUN else sent >= REQUESTS

        load = Load(stack, Random(7), is_over)
        await load.run()
        logs = [server.child.log.read_text() for server in stack.servers if server.child]
        killed = sum(log.count(f"error: {KILLED}") for log in logs)
        return load.outcomes, killed, load.problems


@pytest.mark.timeout(LONG_S + 300 if IS_LONG_RUN else 300)
async def test_nobody_is_killed(llama: None, tmp_path: Path) -> None:
    """The picker begins with nothing learned, and no setting says that contexts are shared: the
    arguments of the processes do."""
    outcomes, killed, problems = await play(tmp_path, "auto")
    assert (killed, outcomes["killed"], outcomes["foreign killed"], problems) == (0, 0, 0, [])
    assert outcomes["left"] > 0.1 * outcomes["answered"] > 0
    assert outcomes["foreign answered"]


@pytest.mark.timeout(LONG_S + 300 if IS_LONG_RUN else 300)
async def test_without_the_ledger_of_tokens_requests_are_killed(
    llama: None, tmp_path: Path
) -> None:
    """The control: this load kills a large part. After few of them the share is known to a third
    of itself, and a busy machine runs fewer at once."""
    outcomes, killed, problems = await play(tmp_path, "per_slot")
    stayed = outcomes["answered"] + outcomes["killed"]
    assert killed >= outcomes["killed"] >= KILLS
    assert outcomes["killed"] >= (0.05 if IS_LONG_RUN else 0.02) * stayed
    assert problems == []


async def test_a_plain_server_soon_runs_requests_side_by_side(llama: None, tmp_path: Path) -> None:
    """Nothing is known of a model at first, and nothing bounds its answers, which are shorter than
    the time between two scrapes. The server itself shows how many it runs."""
    shape = ModelShape(embedding=512, layers=10, heads=8)
    async with Stack.running(tmp_path, shared_tokens=(32_768,), shapes=(shape,)) as stack:
        answered, most_busy = 0, 0

        async def ask(seed: int) -> None:
            nonlocal answered
            while most_busy < 3 and answered < MOST_OF_WARM_UP:
                seed += 1
                body = {"messages": [{"role": "user", "content": f"tell {seed}"}], "seed": seed}
                answer = await stack.client.post(stack.url(CHAT), json=body)
                assert answer.status_code == 200, answer.text
                answered += 1

        asking = asyncio.gather(*(ask(1000 * number) for number in range(8)))
        while not asking.done():
            slots = (await stack.client.get(f"http://{stack.servers[0].address}/slots")).json()
            most_busy = max(most_busy, sum(slot["is_processing"] for slot in slots))
        await asking
        assert most_busy >= 3, f"at most {most_busy} at once in {answered} requests"
