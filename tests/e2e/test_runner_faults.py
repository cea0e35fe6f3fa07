"""What goes wrong with servers of other kinds, behind real Envoy: they die in the middle of lines,
load one model at a time, and reject everything; clients leave. Counted at the servers and at the
clients."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.e2e.stack import CHAT, Stack, until
from tests.fakes.foreign_runner import CRASH, ForeignRunner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

MESSAGES = [{"role": "user", "content": "row"}]
SLOTS = 2
REQUESTS = 100
LONG_LOAD_S = 4.0


class Site:
    """The stack, which has no server of its own, and the foreign ones."""

    def __init__(self, stack: Stack, runners: list[ForeignRunner], usage: Path) -> None:
        self.stack, self.runners, self.usage = stack, runners, usage

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.stack.client.post(self.stack.url(path), json=body)

    async def until_nothing_runs(self) -> None:
        await self.stack.until(
            lambda status: (
                status["queue"]["queued"] == 0
                and all(one["slots"]["leased"] == 0 for one in status["endpoints"].values())
            )
        )

    async def until_counted(self, expected: tuple[int, ...]) -> None:
        """Until usage has these requests, tokens of responses, and requests without a count."""

        async def is_counted() -> bool:
            return counted(self.usage) == expected

        try:
            await until(is_counted)
        except TimeoutError:
            pytest.fail(f"{counted(self.usage)} of {expected}")


def counted(usage: Path) -> tuple[int, ...]:
    with sqlite3.connect(usage) as file:
        row = file.execute(
            "SELECT SUM(requests), SUM(generated_tokens), SUM(uncounted) FROM usage"
        ).fetchone()
    return tuple(value or 0 for value in row)


@asynccontextmanager
async def served_by(folder: Path, *runners: ForeignRunner, **settings: Any) -> AsyncIterator[Site]:
    class Foreign(Stack):
        """Its settings name these servers."""

        async def start_picker(self, settings: dict[str, Any]) -> None:
            endpoints = [
                {"address": one.address, "name": f"{one.kind}-{number}", "slots": SLOTS}
                for number, one in enumerate(runners)
            ]
            await super().start_picker({**settings, "endpoints": endpoints})

    usage = folder / "usage.db"
    whole = {
        "scraper": {"slow_interval_s": 0.2},
        "usage": {"path": str(usage)},
        "ledger": {"blind_draining_cap_s": 3.0},
        "picker": {"fallbacks": 0},
        **settings,
    }
    async with AsyncExitStack() as exits:
        for runner in runners:
            await exits.enter_async_context(runner.serving())
        running = Foreign.running(folder, slots=(), kind="simulator", settings=whole)
        stack = await exits.enter_async_context(running)
        await stack.until(
            lambda status: all(
                one["health"] in ("ready", "degraded") for one in status["endpoints"].values()
            )
        )
        yield Site(stack, list(runners), usage)


async def test_several_models_of_ollamas_that_have_room_for_one(tmp_path: Path) -> None:
    """Each request is answered by the model that it names, under whichever of its names; a server
    never has more requests for a model than slots, also while it loads another one, and models
    stay where they are loaded for most requests. Some clients leave meanwhile."""
    random = Random(11)
    runners = [ForeignRunner("ollama", "a", "b", most_loaded=1, load_s=0.1) for _ in range(2)]
    asked = served = left = 0

    async with served_by(tmp_path, *runners) as site:

        async def client() -> None:
            nonlocal asked, served, left
            while asked < REQUESTS:
                asked += 1
                name = random.choice(["a", "b", "a:latest", "b:latest"])
                patience_s = random.uniform(0.0, 0.1) if random.random() < 0.1 else None
                try:
                    async with asyncio.timeout(patience_s):
                        answer = await site.post("/api/chat", model=name, messages=MESSAGES)
                except TimeoutError:
                    left += 1
                    continue
                assert answer.status_code == 200, answer.text
                lines = [json.loads(line) for line in answer.text.splitlines()]
                assert {line["model"] for line in lines} == {name}
                assert lines[-1]["done"]
                served += 1

        await asyncio.gather(*(client() for _ in range(5)))
        await site.until_nothing_runs()
    assert served + left == asked and left > 0
    assert sum(one.served for one in runners) >= served
    for one in runners:
        assert set(one.most_of) == {"a", "b"}
        assert max(one.most_of.values()) <= SLOTS
        assert 0 < len(one.loads) < one.served / 3


async def test_models_stay_where_they_are_while_their_slots_are_busy(tmp_path: Path) -> None:
    """Of two Ollamas each has room for one model. Requests wait for a slot where their model is,
    if that takes less time than a load: the other Ollama goes on with the other model."""
    runners = [ForeignRunner("ollama", "a", "b", most_loaded=1, load_s=LONG_LOAD_S) for _ in "ab"]
    async with served_by(tmp_path, *runners) as site:

        async def ask(model: str, tokens: int) -> None:
            body = {"messages": MESSAGES, "options": {"num_predict": tokens}}
            answer = await site.post("/api/chat", model=model, **body)
            assert answer.status_code == 200, answer.text

        for model in "ab":
            for _ in range(30):  # by which it is known how long they take
                await ask(model, 20)
        assert sorted(one.loads for one in runners) == [["a"], ["b"]]

        async def client(model: str) -> None:
            for _ in range(10):
                await ask(model, 150)

        await asyncio.gather(*(client("a") for _ in range(5)), client("b"))
        await site.until_nothing_runs()
    assert sorted(one.loads for one in runners) == [["a"], ["b"]]


async def test_an_ollama_that_dies_in_the_middle_of_its_lines(tmp_path: Path) -> None:
    """Its clients see that their responses broke off, a queued request waits for it, and nothing is
    left of those that were lost but requests without a count."""
    ollama = ForeignRunner("ollama")
    long = {"model": "m", "messages": MESSAGES, "options": {"num_predict": 10_000}}
    async with served_by(tmp_path, ollama) as site:
        stack = site.stack
        requests, generated, uncounted = counted(site.usage)
        async with AsyncExitStack() as exits:
            responses = [
                await exits.enter_async_context(
                    stack.client.stream("POST", stack.url("/api/chat"), json=long)
                )
                for _ in range(SLOTS)
            ]
            lines = [response.aiter_lines() for response in responses]
            for each in lines:
                assert json.loads(await anext(each))["done"] is False
            waiting = asyncio.create_task(
                site.post("/api/chat", **{**long, "options": {"num_predict": 7}})
            )
            await stack.until_waiting(1)
            await ollama.stop()
            for each in lines:
                with pytest.raises(httpx.RemoteProtocolError):
                    await read_to_the_end(each)
        await ollama.start()
        answer = await waiting
        assert (answer.status_code, usage_of(answer)) == (200, 7)
        await site.until_nothing_runs()
        await site.until_counted((requests + SLOTS + 1, generated + 7, uncounted + SLOTS))


async def test_an_ollama_whose_model_dies_says_so_in_its_last_line(tmp_path: Path) -> None:
    """The client reads it, the slot is free at once, and the request has no count: what was
    generated before is not known."""
    ollama = ForeignRunner("ollama")
    async with served_by(tmp_path, ollama) as site:
        requests, generated, uncounted = counted(site.usage)
        ollama.crash_after = 3
        for _ in range(2 * SLOTS):
            answer = await site.post("/api/chat", model="m", messages=MESSAGES)
            lines = [json.loads(line) for line in answer.text.splitlines()]
            assert (answer.status_code, len(lines), lines[-1]) == (200, 4, CRASH)
        ollama.crash_after = None
        assert usage_of(await site.post("/api/chat", model="m", messages=MESSAGES)) == 8
        await site.until_nothing_runs()
        lost = 2 * SLOTS
        await site.until_counted((requests + lost + 1, generated + 8, uncounted + lost))


async def read_to_the_end(lines: AsyncIterator[str]) -> None:
    async for line in lines:
        assert not json.loads(line)["done"]


def usage_of(answer: httpx.Response) -> int:
    """The tokens that the last line has."""
    found: int = json.loads(answer.text.splitlines()[-1])["eval_count"]
    return found


def in_a_day() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)


@pytest.mark.parametrize("retry_after", ["86400", "a date", "0"])
async def test_a_provider_that_rejects_everything(tmp_path: Path, retry_after: str) -> None:
    """It is left alone, although its slots are always free: hardly a request is lost there, and
    the other server serves the rest. It did not fail."""
    rejecting, serving = ForeignRunner("openai"), ForeignRunner("openai")
    rejecting.limit = 0
    rejecting.retry_after = in_a_day() if retry_after == "a date" else retry_after
    async with served_by(tmp_path, rejecting, serving) as site:
        statuses: list[int] = []

        async def client() -> None:
            while serving.served < 150:
                answer = await site.post(CHAT, model="m", messages=MESSAGES, max_tokens=10)
                statuses.append(answer.status_code)

        await asyncio.gather(*(client() for _ in range(6)))
        await site.until_nothing_runs()
        assert statuses.count(429) == rejecting.rejected > 0
        assert statuses.count(200) == serving.served == len(statuses) - rejecting.rejected
        assert rejecting.rejected <= SLOTS * (3 if retry_after == "0" else 1)
        status = await site.stack.status()
        health = {one["name"]: one["health"] for one in status["endpoints"].values()}
        assert health["openai-0"] in ("ready", "degraded")


async def test_the_newest_is_next_though_clients_leave(tmp_path: Path) -> None:
    """With `order: lifo`; the server never has more than the bound, and none of those that left."""
    bounds = {"paths": {CHAT: {"running": 1, "order": "lifo"}}}
    server = ForeignRunner("openai")
    served: list[str] = []
    async with served_by(tmp_path, server, bounds=bounds) as site:

        async def ask(name: str, tokens: int = 5) -> None:
            messages = [{"role": "user", "content": name}]
            answer = await site.post(CHAT, model="m", messages=messages, max_tokens=tokens)
            assert answer.status_code == 200
            served.append(name)

        running = asyncio.create_task(ask("first", 2_000))
        await site.stack.until(lambda status: status["slots"]["leased"] == 1)
        heard = len(server.heard)
        clients = {}
        for number, name in enumerate("abcdef", start=1):
            clients[name] = asyncio.create_task(ask(name))
            await site.stack.until_waiting(number)
        for number, name in enumerate(("f", "c"), start=1):
            clients.pop(name).cancel()
            await site.stack.until_waiting(6 - number)
        (bound,) = (await site.stack.status())["queue"]["bounds"]
        assert (bound["running"], bound["queued"], bound["is_lifo"]) == (1, 4, True)
        await asyncio.gather(running, *clients.values())
        await site.until_nothing_runs()
        assert served == ["first", "e", "d", "b", "a"]
        assert [body["messages"][0]["content"] for _, body in server.heard[heard:]] == served[1:]
        assert server.most == 1


GARBAGE = """
from extproc.rules.v1 import Endpoint, Request, Rule

class Garbage(Rule):
    def filter(self, request: Request, endpoint: Endpoint) -> bool | str:
        return {} if request.fairness_id == "odd" else endpoint.name == "openai-0"
"""


async def test_a_rule_that_answers_garbage_is_switched_off(tmp_path: Path) -> None:
    """Its answers count as if it were not there; after three, requests go on without it, and
    operators read why."""
    (tmp_path / "garbage.py").write_text(GARBAGE, encoding="utf-8")
    routing = {"rules": ["garbage:Garbage"], "rules_folder": str(tmp_path)}
    servers = [ForeignRunner("openai"), ForeignRunner("openai")]
    async with served_by(tmp_path, *servers, routing=routing) as site:

        async def ask(flow: str = "") -> str:
            answer = await site.stack.client.post(
                site.stack.url(CHAT),
                json={"model": "m", "messages": MESSAGES, "max_tokens": 200},
                headers={"x-gateway-inference-fairness-id": flow},
            )
            assert answer.status_code == 200
            return answer.headers["x-coxswain-endpoint"]

        assert set(await asyncio.gather(*(ask() for _ in range(2 * SLOTS)))) == {"openai-0"}
        for _ in range(3):
            await ask("odd")
        (problem,) = (await site.stack.status())["problems"]
        assert problem.startswith("the rule Garbage is switched off")
        assert "must return True, False or a reason, not a dict" in problem
        served = await asyncio.gather(*(ask() for _ in range(2 * SLOTS)))
        assert set(served) == {"openai-0", "openai-1"}
