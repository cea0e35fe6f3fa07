"""A fleet of real servers of several kinds behind real Envoy: a llama-server, and another one of
which the picker is to know nothing but OpenAI's API. A vLLM and an Ollama are in it, too, where the
variables VLLM and OLLAMA name their programs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from extproc.demo.port import free_port
from tests.e2e.stack import CHAT, Stack, chat, until
from tests.e2e.test_runners import MODEL, ollama_with_models, usage_of
from tests.fakes.tiny_transformer import write_transformer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.usefixtures("llama")]

VLLM = os.environ.get("VLLM", "")
OLLAMA = os.environ.get("OLLAMA", "")
BOUNDS = {"llama": 2, "openai": 2, "vllm": 3, "ollama": 2}
CLIENTS = 9
"""As many as there are slots: with those that leave, somebody always waits."""
REQUESTS = 90
AFTERWARDS = 24
COUNTED = "counted"
"""The objective of those requests. Of others, whose clients left, some count late."""
START_S = 240.0
"""vLLM takes a minute on a busy machine."""


class RealFleet:
    """The stack, and the addresses of its servers by their names."""

    def __init__(self, stack: Stack, addresses: dict[str, str], usage: Path) -> None:
        self.stack, self.addresses, self.usage = stack, addresses, usage
        self.most: dict[str, int] = dict.fromkeys(addresses, 0)
        """The highest number of requests that a server was seen to have, in work and waiting."""

    async def post(
        self, path: str, body: dict[str, Any], objective: str = ""
    ) -> tuple[int, bytes, str]:
        """The status, the whole body and the endpoint."""
        headers = {"x-gateway-inference-objective": objective} if objective else {}
        answer = await self.stack.client.post(self.stack.url(path), json=body, headers=headers)
        return answer.status_code, answer.content, answer.headers.get("x-coxswain-endpoint", "")

    async def watch(self) -> None:
        """Ask the servers themselves what they have, until this is cancelled."""
        while True:
            for name in self.addresses.keys() - {"ollama"}:
                text = (await self.stack.client.get(f"http://{self.addresses[name]}/metrics")).text
                self.most[name] = max(self.most[name], had_by(text))
            await asyncio.sleep(0.02)


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


class Vllm:
    """A real vLLM that serves a small model, always at the same port."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Vllm]:
        await asyncio.to_thread(write_transformer, self._folder / "transformer")
        await self.start(MODEL)
        try:
            yield self
        finally:
            await self.kill()

    async def start(self, name: str) -> None:
        """Serve the model under this name; returns when it is ready."""
        log = self._folder / f"vllm-{name}.log"
        with log.open("wb") as file:
            process = self._process = await asyncio.create_subprocess_exec(
                *(VLLM, "serve", self._folder / "transformer", "--served-model-name", name),
                *("--host", "127.0.0.1", "--port", str(self._port), "--enforce-eager"),
                *("--max-num-seqs", str(BOUNDS["vllm"]), "--max-model-len", "4096"),
                env={
                    **os.environ,
                    **dict.fromkeys(("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS"), "1"),
                    **dict.fromkeys(("TORCHDYNAMO_DISABLE", "OMP_NUM_THREADS"), "1"),
                    "VLLM_CPU_KVCACHE_SPACE": "1",
                    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                },
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        async with httpx.AsyncClient() as client:

            async def serves() -> bool:
                assert process.returncode is None, log.read_text()[-3000:]
                with suppress(httpx.TransportError):
                    return (await client.get(f"http://{self.address}/health")).status_code == 200
                return False

            await until(serves, START_S)

    async def kill(self) -> None:
        """All of its processes, at once."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[RealFleet]:
    async with AsyncExitStack() as exits:
        more: dict[str, str] = {}
        if VLLM:
            more["vllm"] = (await exits.enter_async_context(Vllm(tmp_path).serving())).address
        if OLLAMA:
            served = ollama_with_models(tmp_path, MODEL, parallel=BOUNDS["ollama"])
            more["ollama"] = await exits.enter_async_context(served)
        usage = tmp_path / "usage.db"

        class Mixed(Stack):
            """Its settings name the other servers, too."""

            async def start_picker(self, settings: dict[str, Any]) -> None:
                more["llama"], more["openai"] = (server.address for server in self.servers)
                endpoints = [
                    {"address": address, "name": name, "slots": BOUNDS[name]}
                    | ({"kind": "openai"} if name == "openai" else {})
                    for name, address in more.items()
                ]
                await super().start_picker({**settings, "endpoints": endpoints})

        settings = {
            "scraper": {"slow_interval_s": 0.5},
            "usage": {"path": str(usage)},
            # On a busy machine a server hears late that a client has left.
            "ledger": {"blind_draining_cap_s": 3.0},
            "models": {MODEL: {MODEL: 1}},
            "objectives": {COUNTED: {"criticality": "standard"}},
        }
        flags = ("--alias", MODEL, "--metrics")
        stack = await exits.enter_async_context(
            Mixed.running(tmp_path, slots=(2, 2), flags=(flags, flags), settings=settings)
        )
        await stack.until(
            lambda status: all(
                one["health"] in ("ready", "degraded") for one in status["endpoints"].values()
            )
        )
        yield RealFleet(stack, more, usage)


def body_of(random: Random, *, has_ollama: bool) -> tuple[str, dict[str, Any]]:
    """Of OpenAI's API or of Ollama's, as a stream or whole."""
    tokens, is_stream = random.randrange(5, 60), random.random() < 0.5
    if has_ollama and random.random() < 0.3:
        messages = [{"role": "user", "content": "row"}]
        options = {"num_predict": tokens}
        return "/api/chat", {
            "model": MODEL,
            "messages": messages,
            "options": options,
            "stream": is_stream,
        }
    body = {**chat(tokens, stream=is_stream), "model": MODEL}
    return CHAT, body | ({"stream_options": {"include_usage": True}} if is_stream else {})


async def test_every_request_is_accounted_for_by_real_servers(fleet: RealFleet) -> None:
    """Under mixed load with leaving clients no server has more than its bound by its own count,
    nothing is left behind, and then tokens are those that the servers said."""
    random = Random(7)
    stack, has_ollama = fleet.stack, "ollama" in fleet.addresses
    ended = {"served": 0, "left": 0}
    served: dict[str, int] = dict.fromkeys(fleet.addresses, 0)
    asked = 0

    async def client() -> None:
        nonlocal asked
        while asked < REQUESTS:
            asked += 1
            path, body = body_of(random, has_ollama=has_ollama)
            patience_s = random.uniform(0.0, 0.2) if random.random() < 0.2 else None
            try:
                async with asyncio.timeout(patience_s):
                    status, content, endpoint = await fleet.post(path, body)
            except TimeoutError:
                ended["left"] += 1
                continue
            assert status == 200, content
            ended["served"] += 1
            served[endpoint] += 1

    watching = asyncio.create_task(fleet.watch())
    try:
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
    finally:
        watching.cancel()
    assert sum(ended.values()) == asked
    assert ended["left"] > 0
    assert min(served.values()) > 0, served
    for name, most in fleet.most.items():
        assert most <= BOUNDS[name], name
    await stack.until(
        lambda status: (
            status["queue"]["queued"] == 0
            and all(one["slots"]["leased"] == 0 for one in status["endpoints"].values())
        )
    )
    expected = [0, 0, 0]
    for _ in range(AFTERWARDS):
        path, body = body_of(random, has_ollama=has_ollama)
        status, content, _ = await fleet.post(path, body, COUNTED)
        assert status == 200, content
        prompt, generated = usage_of(content)
        expected = [expected[0] + 1, expected[1] + prompt, expected[2] + generated]

    async def is_counted() -> bool:
        return counted(fleet.usage) == (*expected, 0)

    try:
        await until(is_counted)
    except TimeoutError:
        pytest.fail(f"{counted(fleet.usage)} of {expected}")


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
    async with Vllm(tmp_path).serving() as vllm:

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
