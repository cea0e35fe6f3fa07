"""A fleet of several kinds behind real Envoy: a llama-server, an Ollama, a vLLM, and a server of
which the picker is to know nothing but OpenAI's API, which is another llama-server. Where the
variables VLLM and OLLAMA name their programs, these are real, else fakes."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from tests.e2e.mixed_load import MODEL, SENDERS, MixedLoad, drained, request_of, sender_of
from tests.e2e.real_runners import OLLAMA, VLLM, Ollama, Vllm
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.fakes.foreign_runner import ForeignRunner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.usefixtures("llama")]

BOUNDS = {"llama": 2, "openai": 2, "vllm": 3, "ollama": 2}
KINDS = {"llama": "llama-server", "openai": "openai", "vllm": "vllm", "ollama": "ollama"}
CLIENTS = 11
"""More than there are slots: somebody always waits."""
REQUESTS = 120
AFTERWARDS = 24
COUNTED = "counted"
"""The objective of those requests. Of others, whose clients left, some count late."""
LOAD_S = 120.0


class RealFleet:
    """The stack, its servers beside the llama-servers, and the addresses of all by their names."""

    def __init__(
        self,
        stack: Stack,
        addresses: dict[str, str],
        vllm: Vllm | ForeignRunner,
        ollama: Ollama | ForeignRunner,
        usage: Path,
    ) -> None:
        self.stack, self.addresses, self.usage = stack, addresses, usage
        self.vllm, self.ollama = vllm, ollama
        self.most: dict[str, int] = dict.fromkeys(addresses, 0)
        """The highest number of requests that a server was seen to have, in work and waiting."""

    async def watch(self) -> None:
        """Ask the servers themselves what they have, until this is cancelled. A real Ollama does
        not say."""
        while True:
            for name in self.addresses.keys() - {"ollama"}:
                with suppress(httpx.TransportError):  # it was killed
                    text = await self.metrics(name)
                    self.most[name] = max(self.most[name], had_by(text))
            await asyncio.sleep(0.02)

    async def metrics(self, name: str) -> str:
        return (await self.stack.client.get(f"http://{self.addresses[name]}/metrics")).text

    async def until_all_serve(self) -> None:
        await self.stack.until(
            lambda status: all(
                one["health"] in ("ready", "degraded") for one in status["endpoints"].values()
            )
        )

    async def die_and_come_back(self, name: str) -> None:
        """At once, whatever runs there. The picker sees it fail before it is back."""
        server, ollama = self.stack.servers[0], self.ollama
        if name == "llama":
            await self.stack.kill(server.child)
        else:
            await (ollama.kill() if isinstance(ollama, Ollama) else ollama.stop())
        address = self.addresses[name]
        await self.stack.until(lambda status: status["endpoints"][address]["health"] == "down")
        await (self.stack.start_server(server) if name == "llama" else ollama.start())
        await self.until_all_serve()


def had_by(metrics: str) -> int:
    """How many requests run and wait, by the metrics of a llama-server or a vLLM."""
    counts = re.findall(
        r"^(?:vllm:num_requests_(?:running|waiting)|llamacpp:requests_(?:processing|deferred))"
        r"(?:\{.*\})? ([0-9.]+)$",
        metrics,
        re.MULTILINE,
    )
    assert len(counts) == 2, metrics
    return sum(int(float(count)) for count in counts)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[RealFleet]:
    async with AsyncExitStack() as exits:
        vllm: Vllm | ForeignRunner
        ollama: Ollama | ForeignRunner
        if VLLM:
            vllm = await exits.enter_async_context(Vllm(tmp_path, BOUNDS["vllm"]).serving(MODEL))
        else:
            vllm = await exits.enter_async_context(ForeignRunner("vllm", MODEL).serving())
        if OLLAMA:
            real = Ollama(tmp_path, BOUNDS["ollama"])
            ollama = await exits.enter_async_context(real.serving(MODEL))
        else:
            ollama = await exits.enter_async_context(ForeignRunner("ollama", MODEL).serving())
        addresses = {"vllm": vllm.address, "ollama": ollama.address}
        usage = tmp_path / "usage.db"

        class Mixed(Stack):
            """Its settings name the other servers, too."""

            async def start_picker(self, settings: dict[str, Any]) -> None:
                addresses["llama"], addresses["openai"] = (one.address for one in self.servers)
                endpoints = [
                    {"address": address, "name": name, "slots": BOUNDS[name]}
                    | ({"kind": "openai"} if name == "openai" else {})
                    for name, address in addresses.items()
                ]
                await super().start_picker({**settings, "endpoints": endpoints})

        settings = {
            "scraper": {"slow_interval_s": 0.5},
            "usage": {"path": str(usage)},
            # On a busy machine a server hears late that a client has left.
            "ledger": {"blind_draining_cap_s": 3.0},
            # A fallback may be full: Envoy takes it when a server refuses its connection.
            "picker": {"fallbacks": 0},
            "models": {MODEL: {MODEL: 1}},
            "objectives": {COUNTED: {"criticality": "standard"}},
        }
        flags = ("--alias", MODEL, "--metrics")
        stack = await exits.enter_async_context(
            Mixed.running(tmp_path, slots=(2, 2), flags=(flags, flags), settings=settings)
        )
        found = RealFleet(stack, addresses, vllm, ollama, usage)
        await found.until_all_serve()
        yield found


@pytest.mark.parametrize("kind", SENDERS)
async def test_every_request_is_accounted_for_by_real_servers(fleet: RealFleet, kind: str) -> None:
    """Under mixed load with leaving clients, two deaths and a drain no server has more than its
    bound by its own count, nothing is left behind, and then tokens are those that the servers
    said."""
    random, stack = Random(7), fleet.stack
    is_over = False
    async with sender_of(kind, stack) as sender:
        load = MixedLoad(
            sender=sender,
            random=random,
            clients=CLIENTS,
            requests=REQUESTS,
            tokens=60,
            patience_s=0.2,
        )

        async def troubles() -> None:
            nonlocal is_over
            for name in ("llama", "ollama"):
                await until_served(load, name, 3)
                await fleet.die_and_come_back(name)
            async with drained(stack, "openai"):
                had, from_here = await fleet.metrics("openai"), load.asked
                await until_so(lambda: load.asked >= from_here + 2 * CLIENTS)
                assert done_by(await fleet.metrics("openai")) == done_by(had)
            await until_served(load, "openai", 1)
            is_over = True

        watching = asyncio.create_task(fleet.watch())
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(troubles())
                group.create_task(load.run(lambda: is_over))
        finally:
            watching.cancel()
        ended = load.outcomes
        assert sum(ended.values()) == load.asked
        assert ended["left"] > 0
        dead = BOUNDS["llama"] + BOUNDS["ollama"]
        assert ended["broken"] <= dead, "no more than ran at the servers that died"
        assert ended["refused"] <= dead, "no more than were on their way to them"
        assert {endpoint for _, endpoint in load.served_by} == set(BOUNDS)
        own = {endpoint for path, endpoint in load.served_by if path.startswith("/api/")}
        assert own == {"ollama"}, "its own paths are served by nothing else"
        for fake in (fleet.vllm, fleet.ollama):
            if isinstance(fake, ForeignRunner):
                fleet.most[fake.kind] = fake.most
                assert load.served(fake.kind) <= fake.served
        for name, most in fleet.most.items():
            assert most <= BOUNDS[name], name
        await stack.until(
            lambda status: (
                status["queue"]["queued"] == 0
                and all(
                    one["slots"]["leased"] == one["slots"]["foreign"] == 0
                    for one in status["endpoints"].values()
                )
            )
        )
        endpoints = (await stack.status())["endpoints"].values()
        assert {one["name"]: one["runner"] for one in endpoints} == KINDS
        expected = [0, 0, 0]
        for _ in range(AFTERWARDS):
            request = request_of(random, tokens=60, objective=COUNTED)
            one = await sender.send(request)
            assert one.outcome == "served", request
            expected = [expected[0] + 1, expected[1] + one.prompt, expected[2] + one.generated]

    async def is_counted() -> bool:
        return counted(fleet.usage) == (*expected, 0)

    try:
        await until(is_counted)
    except TimeoutError:
        pytest.fail(f"{counted(fleet.usage)} of {expected}")


def done_by(metrics: str) -> list[str]:
    """How many tokens a llama-server has read and generated, by its metrics."""
    found = re.findall(
        r"^llamacpp:(?:prompt_tokens|tokens_predicted)_total ([0-9.e+]+)$", metrics, re.MULTILINE
    )
    assert len(found) == 2, metrics
    return found


async def until_served(load: MixedLoad, endpoint: str, more: int) -> None:
    wanted = load.served(endpoint) + more
    await until_so(lambda: load.served(endpoint) >= wanted)


async def until_so(is_so: Callable[[], bool]) -> None:
    async def probe() -> bool:
        return is_so()

    await until(probe, LOAD_S)


def counted(usage: Path) -> tuple[int, ...]:
    """What is in the file of the requests of `COUNTED`."""
    with sqlite3.connect(usage) as file:
        row = file.execute(
            "SELECT SUM(requests), SUM(prompt_tokens), SUM(generated_tokens), SUM(uncounted) "
            "FROM usage WHERE objective = ?",
            (COUNTED,),
        ).fetchone()
    return tuple(value or 0 for value in row)


@pytest.mark.skipif(not VLLM, reason="the variable VLLM names no program")
async def test_a_vllm_that_is_killed_and_comes_back_with_another_model(tmp_path: Path) -> None:
    """Responses that it sent break off, a queued request gets no other model, and the picker knows
    the new one and has nothing left of the one before."""
    async with Vllm(tmp_path, BOUNDS["vllm"]).serving(MODEL) as vllm:

        class Alone(Stack):
            """Its settings name the vLLM."""

            async def start_picker(self, settings: dict[str, Any]) -> None:
                endpoint = {"address": vllm.address, "name": "vllm", "slots": 2}
                await super().start_picker({**settings, "endpoints": [endpoint]})

        def is_serving(status: dict[str, Any], model: str) -> bool:
            (one,) = status["endpoints"].values()
            return bool(one["health"] == "ready" and one["models"] == [model])

        settings = {
            "scraper": {"slow_interval_s": 0.5},
            "routing": {"model_match": "strict"},
            "queue": {"timeout_s": 2.0},
        }
        async with Alone.running(tmp_path, slots=(), settings=settings) as stack:
            await stack.until(lambda status: is_serving(status, MODEL))
            body = {**chat(4000, stream=True), "model": MODEL}
            async with AsyncExitStack() as exits:
                lines = []
                for _ in range(2):
                    sent = stack.client.stream("POST", stack.url(CHAT), json=body)
                    lines.append((await exits.enter_async_context(sent)).aiter_lines())
                    await anext(lines[-1])
                short = {**chat(5), "model": MODEL}
                waiting = asyncio.create_task(stack.client.post(stack.url(CHAT), json=short))
                await stack.until_waiting(1)
                await vllm.kill()
                for each in lines:
                    with pytest.raises(httpx.RemoteProtocolError):
                        await read_to_the_end(each)
            await vllm.start("another")
            await stack.until(lambda status: is_serving(status, "another"))
            answer = await stack.client.post(stack.url(CHAT), json={**chat(5), "model": "another"})
            assert answer.status_code == 200
            assert answer.json()["model"] == "another"
            old = await stack.client.post(stack.url(CHAT), json=short)
            assert min(old.status_code, (await waiting).status_code) >= 400
            await stack.until(
                lambda status: status["queue"]["queued"] == status["slots"]["leased"] == 0
            )


async def read_to_the_end(lines: AsyncIterator[str]) -> None:
    async for line in lines:
        assert "[DONE]" not in line
        assert not line or json.loads(line.removeprefix("data: "))["model"] == MODEL
