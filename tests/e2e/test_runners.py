"""A fleet of several kinds behind real Envoy: a simulated llama-server, an Ollama, a vLLM, and a
server of which nothing is known but OpenAI's API. The last three are fakes; where the variable
OLLAMA names its program, a real one is served too."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.e2e.mixed_load import (
    MESSAGES,
    MODEL,
    OLLAMAS_PACKAGE,
    SENDERS,
    MixedLoad,
    drained,
    request_of,
    sender_of,
    usage_of,
)
from tests.e2e.real_runners import OLLAMA, Ollama
from tests.e2e.stack import CHAT, Stack, until
from tests.e2e.test_clients_page import OPENAI, run, with_package
from tests.fakes.foreign_runner import ForeignRunner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CLIENTS = 12
"""More than there are slots: somebody waits unless clients leave."""
REQUESTS = 150
BOUNDS = {"ollama": 3, "vllm": 4, "openai": 2}


class Fleet:
    """The stack, and the three servers beside its llama-server."""

    def __init__(self, stack: Stack, runners: dict[str, ForeignRunner], usage: Path) -> None:
        self.stack, self.runners, self.usage = stack, runners, usage

    async def until_all_serve(self) -> None:
        await self.stack.until(
            lambda status: all(
                endpoint["health"] in ("ready", "degraded")
                for endpoint in status["endpoints"].values()
            )
        )

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes, str]:
        """The status, the whole body and the endpoint."""
        answer = await self.stack.client.post(self.stack.url(path), json=body)
        return answer.status_code, answer.content, answer.headers.get("x-coxswain-endpoint", "")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as exits:
        runners = {kind: ForeignRunner(kind, MODEL) for kind in BOUNDS}
        for runner in runners.values():
            await exits.enter_async_context(runner.serving())
        endpoints: list[dict[str, Any]] = [
            {"address": runners[kind].address, "name": kind, "slots": slots}
            for kind, slots in BOUNDS.items()
        ]
        usage = tmp_path / "usage.db"
        settings = {
            "scraper": {"slow_interval_s": 0.5},
            "usage": {"path": str(usage)},
            # On a busy machine a server hears late that a client has left.
            "ledger": {"blind_draining_cap_s": 3.0},
            # A fallback may be full: Envoy takes it when a server refuses its connection.
            "picker": {"fallbacks": 0},
            "more_endpoints": endpoints,
            "models": {MODEL: {MODEL: 1}},
        }
        stack = await exits.enter_async_context(
            _with_more(tmp_path, settings.pop("more_endpoints"), settings)
        )
        found = Fleet(stack, runners, usage)
        await found.until_all_serve()
        yield found


def _with_more(folder: Path, endpoints: Any, settings: Any) -> Any:
    class Mixed(Stack):
        """Its settings name the other servers too."""

        async def start_picker(self, settings: dict[str, Any]) -> None:
            own = [{"address": server.address, "name": "llama"} for server in self.servers]
            await super().start_picker({**settings, "endpoints": [*own, *endpoints]})

    flags = (("--alias", MODEL),)
    return Mixed.running(folder, slots=(2,), kind="simulator", flags=flags, settings=settings)


@pytest.mark.parametrize("kind", SENDERS)
async def test_mixed_load_with_leaving_clients_a_death_and_a_drain(fleet: Fleet, kind: str) -> None:
    """Every request is accounted for, no server has more of ours than its bound, and the tokens
    are those that the servers count."""
    stack, while_drained, is_over = fleet.stack, list[int](), False
    async with sender_of(kind, stack) as sender:
        load = MixedLoad(sender=sender, random=Random(3), clients=CLIENTS, requests=REQUESTS)

        async def troubles() -> None:
            nonlocal is_over
            vllm = fleet.runners["vllm"]
            await until_async(lambda: vllm.served >= 5)
            await vllm.stop()
            await until_async(lambda: load.asked >= REQUESTS // 3)
            await vllm.start()
            openai = fleet.runners["openai"]
            async with drained(stack, "openai"):
                heard, from_here = len(openai.heard), load.asked
                assert openai.running == 0
                await until_async(lambda: load.asked >= from_here + 2 * CLIENTS)
                while_drained.append(len(openai.heard) - heard)
            before = openai.served
            await until_async(lambda: openai.served > before)
            is_over = True

        async with asyncio.TaskGroup() as group:
            group.create_task(troubles())
            group.create_task(load.run(lambda: is_over))
    ended = load.outcomes
    assert sum(ended.values()) == load.asked
    assert ended["served"] > REQUESTS / 2
    assert ended["left"] > 0
    assert ended["broken"] <= BOUNDS["vllm"], "no more than ran at the server that died"
    assert ended["refused"] <= BOUNDS["vllm"], "no more than were on their way to it"
    assert while_drained == [0]
    assert {endpoint for _, endpoint in load.served_by} == {"llama", *BOUNDS}
    own = {endpoint for path, endpoint in load.served_by if path.startswith("/api/")}
    assert own == {"ollama"}, "its own paths are served by nothing else"
    for name, runner in fleet.runners.items():
        assert 0 < runner.most <= BOUNDS[name], name
        assert load.served(name) <= runner.served
    await stack.until(
        lambda status: all(
            endpoint["slots"]["leased"] == 0 for endpoint in status["endpoints"].values()
        )
    )
    status = await stack.status()
    assert status["queue"]["queued"] == 0
    assert not any(one["slots"]["foreign"] for one in status["endpoints"].values())
    known = {one["name"]: one["is_foreign_known"] for one in status["endpoints"].values()}
    assert known == {"llama": True, "ollama": False, "vllm": True, "openai": False}
    kinds = {endpoint["name"]: endpoint["runner"] for endpoint in status["endpoints"].values()}
    assert kinds == {
        "llama": "llama-server",
        "ollama": "ollama",
        "vllm": "vllm",
        "openai": "openai",
    }


async def until_async(is_so: Any) -> None:
    async def probe() -> bool:
        return bool(is_so())

    await until(probe)


def counted(fleet: Fleet) -> tuple[int, ...]:
    with sqlite3.connect(fleet.usage) as file:
        row = file.execute(
            "SELECT SUM(requests), SUM(prompt_tokens), SUM(generated_tokens), SUM(uncounted) "
            "FROM usage"
        ).fetchone()
    return tuple(value or 0 for value in row)


async def test_tokens_of_each_api_are_those_that_the_servers_said(fleet: Fleet) -> None:
    """Of whole responses, streamed or not."""
    random = Random(5)
    await until_async(lambda: counted(fleet)[0])  # by which the stack saw that it serves
    requests, prompt, generated, _ = counted(fleet)
    for _ in range(40):
        request = request_of(random)
        status, content, _ = await fleet.post(request.path, request.body)
        assert status == 200
        found = usage_of(content)
        requests, prompt, generated = requests + 1, prompt + found[0], generated + found[1]
    for runner in fleet.runners.values():
        assert runner.served > 0

    async def is_counted() -> bool:
        return counted(fleet) == (requests, prompt, generated, 0)

    try:
        await until(is_counted)
    except TimeoutError:
        pytest.fail(f"{counted(fleet)} of {requests}, {prompt}, {generated}")


async def test_each_path_goes_where_it_is_served_or_is_refused_in_its_words(fleet: Fleet) -> None:
    """By the picker, and by Envoy alone."""
    for path, body, endpoint in (
        ("/api/embed", {"model": MODEL, "input": "a"}, "ollama"),
        ("/completion", {"prompt": "a", "n_predict": 2}, "llama"),
        ("/api/show", {"model": MODEL}, "ollama"),
    ):
        status, _, served_by = await fleet.post(path, body)
        assert (status, served_by or endpoint) == (200, endpoint), path
    for path in ("/api/pull", "/api/delete", "/api/blobs/sha256:1"):
        status, content, _ = await fleet.post(path, {"model": MODEL})
        assert status == 403
        assert isinstance(json.loads(content)["error"], str), "as Ollama's clients read it"
    url = fleet.stack.url("/api/tags")
    tags = (await fleet.stack.client.get(url)).json()
    assert [model["name"] for model in tags["models"]] == [f"{MODEL}:latest"]
    stack = fleet.stack
    rejected = await stack.client.post(
        stack.url("/api/chat"),
        json={"model": MODEL, "messages": MESSAGES},
        headers={"x-coxswain-queue-timeout-ms": "soon"},
    )
    assert rejected.status_code == 400
    assert isinstance(rejected.json()["error"], str)


async def test_a_provider_that_is_full_is_left_alone_for_as_long_as_it_asks(fleet: Fleet) -> None:
    """Its 429 reaches the client, and no other request meets it until the pause is over."""
    openai = fleet.runners["openai"]
    openai.limit, openai.retry_after = 0, "60"  # longer than the test goes on
    statuses: list[int] = []

    async def is_rejected() -> bool:
        status, _, _ = await fleet.post(CHAT, {"model": MODEL, "messages": MESSAGES})
        statuses.append(status)
        return bool(openai.rejected)

    await until(is_rejected)
    assert statuses.pop() == 429
    for _ in range(20):
        await is_rejected()
    assert openai.rejected == 1
    assert set(statuses) == {200}
    status = await fleet.stack.status()
    (paused,) = (one for one in status["endpoints"].values() if one["name"] == "openai")
    assert "paused" in [issue["code"] for issue in paused["issues"]]
    assert paused["health"] in ("ready", "degraded"), "it did not fail"


OLLAMAS_CLIENT = """
import sys
from ollama import Client, ResponseError

client = Client(host=sys.argv[1])
messages = [{"role": "user", "content": "row"}]
answer = client.chat(model="m", messages=messages, options={"num_predict": 5})
assert answer.eval_count == 5, answer
parts = list(client.generate(model="m:latest", prompt="row", stream=True))
assert parts[-1].done and len(parts) > 2, parts
assert [model.model for model in client.list().models] == ["m:latest"]
assert client.embed(model="m", input="row").embeddings
client.show("m")
try:
    client.pull("m")
except ResponseError as error:
    assert error.status_code == 403 and error.error.startswith("This path is closed"), error
else:
    raise SystemExit("pull is open")
"""
OPENAIS_CLIENT = """
import sys
from openai import OpenAI

client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
messages = [{"role": "user", "content": "row"}]
for _ in range(12):
    answer = client.chat.completions.create(model="m", messages=messages, max_tokens=5)
    assert answer.choices[0].message.content, answer
    stream = client.chat.completions.create(
        model="m", messages=messages, max_tokens=5, stream=True
    )
    assert len(list(stream)) > 1
assert "m" in {model.id for model in client.models.list()}
"""


@pytest.mark.parametrize(
    ("package", "code"), [(OLLAMAS_PACKAGE, OLLAMAS_CLIENT), (OPENAI, OPENAIS_CLIENT)]
)
async def test_the_clients_of_both_apis(fleet: Fleet, package: str, code: str) -> None:
    """As their projects publish them."""
    await run(*await with_package(package, "python", "-c", code, fleet.stack.url("")))


needs_ollama = pytest.mark.skipif(not OLLAMA, reason="the variable OLLAMA names no program")


@asynccontextmanager
async def beside_a_real_ollama(
    folder: Path, *names: str, **environment: str
) -> AsyncIterator[Fleet]:
    """A stack with a real Ollama that has models of these names."""
    async with Ollama(folder, environment=environment).serving(*names) as ollama:
        endpoint = {"address": ollama.address, "name": "ollama", "slots": 2}
        usage = folder / "usage.db"
        settings = {
            "scraper": {"slow_interval_s": 0.5},
            "usage": {"path": str(usage)},
            "models": {name: {name: 1} for name in names},
        }
        async with _with_more(folder, [endpoint], settings) as stack:
            fleet = Fleet(stack, {}, usage)
            await fleet.until_all_serve()
            await until_async(lambda: counted(fleet)[0])
            yield fleet


@needs_ollama
async def test_a_real_ollama(tmp_path: Path) -> None:
    """Found out, its model loaded by the first request, both of its APIs counted exactly."""
    async with beside_a_real_ollama(tmp_path, "own") as fleet:
        requests, prompt, generated, _ = counted(fleet)
        options = {"num_predict": 6}
        own = {"model": "own", "messages": MESSAGES, "options": options}
        whole = {"model": "own", "messages": MESSAGES, "max_tokens": 6}
        streamed = {**whole, "stream": True, "stream_options": {"include_usage": True}}
        answers = await asyncio.gather(
            *(fleet.post("/api/chat", own) for _ in range(6)),
            *(fleet.post(CHAT, body) for body in (whole, streamed) for _ in range(4)),
        )
        assert {(status, endpoint) for status, _, endpoint in answers} == {(200, "ollama")}
        for _, content, _ in answers:
            found = usage_of(content)
            requests, prompt, generated = requests + 1, prompt + found[0], generated + found[1]
        await until_async(lambda: counted(fleet) == (requests, prompt, generated, 0))
        status = await fleet.stack.status()
        kinds = {one["name"]: one["runner"] for one in status["endpoints"].values()}
        assert kinds == {"llama": "llama-server", "ollama": "ollama"}


@needs_ollama
async def test_several_models_of_a_real_ollama_that_has_room_for_one(tmp_path: Path) -> None:
    """It loads one at a time, and all others wait there: each request is answered by the model
    that it names, and counted."""
    random, names = Random(13), ("m", "other", "third")
    async with beside_a_real_ollama(tmp_path, *names, OLLAMA_MAX_LOADED_MODELS="1") as fleet:
        requests, _, generated, _ = counted(fleet)
        loaded: set[tuple[str, ...]] = set()
        bodies = [
            {
                "model": random.choice(names) + random.choice(["", ":latest"]),
                "messages": MESSAGES,
                "options": {"num_predict": 5},
                "stream": False,
            }
            for _ in range(24)
        ]

        async def client() -> None:
            nonlocal requests, generated
            while bodies:
                body = bodies.pop()
                status, content, endpoint = await fleet.post("/api/chat", body)
                assert (status, endpoint) == (200, "ollama"), content
                assert json.loads(content)["model"] == body["model"]
                requests, generated = requests + 1, generated + usage_of(content)[1]
                running = await fleet.stack.client.get(fleet.stack.url("/api/ps"))
                loaded.add(tuple(one["name"] for one in running.json()["models"]))

        await asyncio.gather(*(client() for _ in range(5)))
        assert max(map(len, loaded)) == 1 and len(loaded) > 1, loaded
        await until_async(lambda: (counted(fleet)[0], counted(fleet)[2]) == (requests, generated))
        assert (await fleet.stack.status())["slots"]["leased"] == 0


@needs_ollama
async def test_two_real_ollamas_keep_their_models(tmp_path: Path) -> None:
    """Each has room for one of both models. Two requests at once load a model once, at the Ollama
    that has none, and requests for both models in turn move none."""
    names = ("own", "other")
    async with AsyncExitStack() as exits:
        urls = []
        for number in range(2):
            folder = tmp_path / str(number)
            folder.mkdir()
            one = Ollama(folder, environment={"OLLAMA_MAX_LOADED_MODELS": "1"})
            await exits.enter_async_context(one.serving(*names))
            urls.append(one.address)
        settings = {
            "scraper": {"slow_interval_s": 0.2},
            "models": {name: {name: 1} for name in names},
        }
        endpoints = [
            {"address": url, "name": f"ollama-{number}", "slots": 2}
            for number, url in enumerate(urls)
        ]
        stack = await exits.enter_async_context(_with_more(tmp_path, endpoints, settings))
        fleet = Fleet(stack, {}, tmp_path)
        await fleet.until_all_serve()

        async def loaded() -> list[list[str]]:
            answers = [(await stack.client.get(f"http://{url}/api/ps")).json() for url in urls]
            return [[model["name"] for model in answer["models"]] for answer in answers]

        async def ask(name: str) -> str:
            options = {"num_predict": 3}
            body = {"model": name, "messages": MESSAGES, "options": options}
            status, content, endpoint = await fleet.post("/api/chat", body)
            assert status == 200, content
            return endpoint

        homes = [set(await asyncio.gather(ask(name), ask(name))) for name in names]
        assert len(homes[0]) == len(homes[1]) == 1 and homes[0] != homes[1]
        before = await loaded()
        assert sorted(before) == [["other:latest"], ["own:latest"]]
        for _ in range(10):
            served = await asyncio.gather(*(ask(name) for name in names))
            assert [{one} for one in served] == homes
        assert await loaded() == before
