"""A fleet of several kinds behind real Envoy: a llama-server, an Ollama, a vLLM, and a server of
which the picker is to know nothing but OpenAI's API, which is another llama-server. Where the
variables VLLM and OLLAMA name their programs, these are real, else fakes. And a llama-swap, where
LLAMA_SWAP names its program."""

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

from extproc.demo.llama_server import find_llama_server
from extproc.demo.port import free_port
from extproc.keeper.llama_swap import import_llama_swap
from tests.e2e.kept import all_pids, words_of
from tests.e2e.mixed_load import MODEL, SENDERS, MixedLoad, drained, request_of, sender_of
from tests.e2e.real_runners import LLAMA_SWAP, OLLAMA, VLLM, LlamaSwap, Ollama, Vllm, small_model
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.fakes.counting_relay import CountingRelay
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
    """The stack, its servers beside the llama-servers, and by their names the relays before all,
    at which the picker and Envoy find them."""

    def __init__(
        self,
        stack: Stack,
        relays: dict[str, CountingRelay],
        vllm: Vllm | ForeignRunner,
        ollama: Ollama | ForeignRunner,
        usage: Path,
    ) -> None:
        self.stack, self.relays, self.usage = stack, relays, usage
        self.vllm, self.ollama = vllm, ollama
        self.most: dict[str, int] = dict.fromkeys(relays, 0)
        """The highest number of requests that a server said to have, in work and waiting."""

    async def watch(self) -> None:
        """Ask the servers themselves what they have, until this is cancelled. A real Ollama does
        not say."""
        while True:
            for name in self.relays.keys() - {"ollama"}:
                with suppress(httpx.TransportError):  # it was killed
                    text = await self.metrics(name)
                    self.most[name] = max(self.most[name], had_by(text))
            await asyncio.sleep(0.02)

    async def metrics(self, name: str) -> str:
        return (await self.stack.client.get(f"http://{self.relays[name].address}/metrics")).text

    async def until_all_serve(self) -> None:
        await self.stack.until(
            lambda status: all(
                one["health"] in ("ready", "degraded") for one in status["endpoints"].values()
            )
        )

    async def die_and_come_back(self, name: str) -> None:
        """At once, whatever runs there. The picker sees it fail before it is back."""
        server, ollama, relay = self.stack.servers[0], self.ollama, self.relays[name]
        await relay.stop()  # at once: what is on its way there finds nobody
        if name == "llama":
            await self.stack.kill(server.child)
        else:
            await (ollama.kill() if isinstance(ollama, Ollama) else ollama.stop())
        await self.stack.until(
            lambda status: status["endpoints"][relay.address]["health"] == "down"
        )
        await relay.start()
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
        relays = {"vllm": CountingRelay(vllm.address), "ollama": CountingRelay(ollama.address)}
        for relay in relays.values():
            await exits.enter_async_context(relay.serving())
        usage = tmp_path / "usage.db"

        class Mixed(Stack):
            """Its servers are behind relays, too, and its settings name the others."""

            def _server_command(self, kind: str, port: int, *more: Any) -> list[str | Path]:
                own = free_port()
                name = "openai" if "llama" in relays else "llama"
                relays[name] = CountingRelay(f"127.0.0.1:{own}", port)
                return super()._server_command(kind, own, *more)

            async def start_picker(self, settings: dict[str, Any]) -> None:
                endpoints = [
                    {"address": relay.address, "name": name, "slots": BOUNDS[name]}
                    | ({"kind": "openai"} if name == "openai" else {})
                    for name, relay in relays.items()
                ]
                await super().start_picker({**settings, "endpoints": endpoints})

            async def boot(self, *settings: Any) -> None:
                for name in ("llama", "openai"):
                    await exits.enter_async_context(relays[name].serving())
                await super().boot(*settings)

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
        found = RealFleet(stack, relays, vllm, ollama, usage)
        await found.until_all_serve()
        yield found


@pytest.mark.parametrize("kind", SENDERS)
async def test_every_request_is_accounted_for_by_real_servers(fleet: RealFleet, kind: str) -> None:
    """Under mixed load with leaving clients, two deaths and a drain no server has more than its
    bound, by its own count and as requests arrive there, nothing is left behind, and then tokens
    are those that the servers said."""
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
        for name, relay in fleet.relays.items():
            assert relay.most <= BOUNDS[name], f"{name}: {relay.most} requests of ours at once"
            assert relay.taken >= load.served(name) > 0
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
            return bool(
                one["health"] == "ready" and [each["name"] for each in one["models"]] == [model]
            )

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


SWAPPED = """\
# as llama-swap's example is written
healthCheckTimeout: 60
startPort: {first}
macros:
  "server": >
    {binary}
    --port ${{PORT}} -t 1 --no-webui
  "context": 4096
models:
  "a":
    cmd: |
      # a comment
      ${{server}} \\
      --model {folder}/a.gguf
      --ctx-size ${{context}}
      --parallel 2
    aliases:
      - "alpha"
  "b":
    cmd: ${{server}} -m "{folder}/b.gguf" -c ${{context}} -np 2
    ttl: 300
"""
SWAP_REQUESTS = 24


@pytest.mark.skipif(not LLAMA_SWAP, reason="the variable LLAMA_SWAP names no program")
@pytest.mark.parametrize("kind", ["auto", "openai"])
async def test_a_llama_swap_beside_a_llama_server(tmp_path: Path, kind: str) -> None:
    """It is found out, each request is answered by the model that it names, also by an alias, it
    has no more of them at once than its bound, and clients that leave free their slots."""
    async with AsyncExitStack() as exits:
        swap = await exits.enter_async_context(LlamaSwap(swap_file(tmp_path)).serving())
        relay = await exits.enter_async_context(CountingRelay(swap.address).serving())

        class Beside(Stack):
            """Its settings name the llama-swap, too."""

            async def start_picker(self, settings: dict[str, Any]) -> None:
                (own,) = self.servers
                endpoints = [
                    {"address": own.address, "name": "llama"},
                    {"address": relay.address, "name": "swap", "slots": 2, "kind": kind},
                ]
                await super().start_picker({**settings, "endpoints": endpoints})

        settings = {
            "scraper": {"slow_interval_s": 0.5},
            "ledger": {"blind_draining_cap_s": 3.0},
            "routing": {"model_match": "strict"},
        }
        stack = await exits.enter_async_context(
            Beside.running(tmp_path, slots=(2,), flags=(("--alias", MODEL),), settings=settings)
        )

        def swap_of(status: dict[str, Any]) -> dict[str, Any]:
            found: dict[str, Any] = status["endpoints"][relay.address]
            return found

        await stack.until(lambda status: swap_of(status)["health"] == "ready")
        found = swap_of(await stack.status())
        names = [model["name"] for model in found["models"]]
        assert (found["runner"], names) == ("openai", ["a", "b"])

        async def ask(number: int) -> str:
            name = ("a", "b", "alpha", MODEL)[number % 4]
            is_stream, leaves = number % 3 == 0, number % 8 == 6
            body = {**chat(400 if leaves else 20, stream=is_stream), "model": name}
            if leaves:
                try:
                    async with asyncio.timeout(0.3):
                        await stack.client.post(stack.url(CHAT), json=body)
                except TimeoutError:
                    return "left"
                return "served"
            answer = await stack.client.post(stack.url(CHAT), json=body)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-coxswain-endpoint"] == ("llama" if name == MODEL else "swap")
            if name != MODEL:
                file = f"{tmp_path}/{'a' if name == 'alpha' else name}.gguf"
                assert json.dumps(file) in answer.text, "a llama-server says its file"
            assert not is_stream or answer.text.rstrip().endswith("[DONE]")
            return "served"

        outcomes = await asyncio.gather(*map(ask, range(SWAP_REQUESTS)))
        assert outcomes.count("served") >= SWAP_REQUESTS - SWAP_REQUESTS // 8
        assert 0 < relay.most <= 2
        refused = await stack.client.post(stack.url(CHAT), json={**chat(5), "model": "zzz"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        await stack.until(
            lambda status: status["queue"]["queued"] == status["slots"]["leased"] == 0
        )


@pytest.mark.skipif(not LLAMA_SWAP, reason="the variable LLAMA_SWAP names no program")
async def test_the_import_has_the_commands_that_a_llama_swap_starts(tmp_path: Path) -> None:
    """Word for word, but for the port, which the keeper has from the same number on."""
    file = swap_file(tmp_path)
    imported = import_llama_swap(file.read_bytes(), str(file), lambda _: 1, {}).content["models"]
    async with (
        LlamaSwap(file).serving() as swap,
        httpx.AsyncClient(base_url=f"http://{swap.address}", timeout=60) as client,
    ):
        for name in ("a", "b"):
            answer = await client.post(CHAT, json={**chat(5), "model": name})
            assert answer.status_code == 200, answer.text
            model = f"{tmp_path}/{name}.gguf"
            (words,) = (words[:-1] for words in map(words_of, all_pids()) if model in words)
            words[words.index("--port") + 1] = "${PORT}"
            assert words == imported[name]["cmd"]


def swap_file(folder: Path) -> Path:
    """The configuration of a llama-swap, and the files of its models."""
    for seed, name in enumerate("ab"):
        small_model(folder / f"{name}.gguf", seed)
    file = folder / "llama-swap.yaml"
    text = SWAPPED.format(first=free_port(), binary=find_llama_server(), folder=folder)
    file.write_text(text)
    return file
