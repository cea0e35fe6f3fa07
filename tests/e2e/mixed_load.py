"""A mixed load of OpenAI's API and of Ollama's on a fleet behind Envoy, of which each request is
accounted for at its client.

It is sent as plain HTTP, or by the clients that both projects publish (`tests/fakes/sdk_clients.py`
in an environment of its own).
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

import grpc
import httpx

from extproc.pb.coxswain.v1 import admin_pb2 as pb
from extproc.pb.coxswain.v1.admin_pb2_grpc import AdminStub
from tests.e2e.stack import CHAT, Stack
from tests.e2e.test_clients_page import OPENAI, with_package

OLLAMAS_PACKAGE = "ollama==0.6.3"
MODEL = "m"
MESSAGES = [{"role": "user", "content": "row the boat"}]
SENDERS = ("plain", "sdks")
SDK_CLIENTS = Path(__file__).parents[1] / "fakes" / "sdk_clients.py"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A client leaves after `patience_s`, if it has one."""

    path: str
    body: dict[str, Any]
    patience_s: float | None = None
    objective: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """`outcome` is `served`, `left`, `refused` (503) or `broken`; the tokens are those that a
    served client read."""

    outcome: str
    endpoint: str
    prompt: int = 0
    generated: int = 0


class Sender(Protocol):
    """Sends requests to Envoy."""

    async def send(self, request: Request) -> Ended: ...


def request_of(
    random: Random, *, tokens: int = 40, patience_s: float = 0.0, objective: str = ""
) -> Request:
    """Of OpenAI's API or of Ollama's, as a stream or whole, with less than `tokens` tokens. Of
    five clients one leaves, within `patience_s`, if that is given."""
    count, is_stream = random.randrange(5, tokens), random.random() < 0.5
    patience = random.uniform(0.0, patience_s) if patience_s and random.random() < 0.2 else None
    if random.random() < 0.6:
        body: dict[str, Any] = {
            "model": MODEL,
            "messages": MESSAGES,
            "max_tokens": count,
            "stream": is_stream,
            "ignore_eos": True,
            "cache_prompt": False,
        }
        if is_stream:
            body["stream_options"] = {"include_usage": True}
        path = CHAT
    else:
        path = random.choice(["/api/chat", "/api/generate"])
        body = {
            "model": random.choice([MODEL, f"{MODEL}:latest"]),
            "options": {"num_predict": count},
            **({"messages": MESSAGES} if path == "/api/chat" else {"prompt": "row"}),
            **({} if is_stream else {"stream": False}),
        }
    return Request(path=path, body=body, patience_s=patience, objective=objective)


class PlainSender:
    """As httpx sends it."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    async def send(self, request: Request) -> Ended:
        headers = {"x-gateway-inference-objective": request.objective} if request.objective else {}
        try:
            async with asyncio.timeout(request.patience_s):
                answer = await self._stack.client.post(
                    self._stack.url(request.path), json=request.body, headers=headers
                )
        except TimeoutError:
            return Ended(outcome="left", endpoint="")
        except httpx.TransportError:
            return Ended(outcome="broken", endpoint="")
        endpoint = answer.headers.get("x-coxswain-endpoint", "")
        if answer.status_code != 200:
            outcome = "refused" if answer.status_code == 503 else "broken"
            return Ended(outcome=outcome, endpoint=endpoint)
        prompt, generated = usage_of(answer.content)
        return Ended(outcome="served", endpoint=endpoint, prompt=prompt, generated=generated)


def usage_of(content: bytes) -> tuple[int, int]:
    """The tokens of the prompt and of the response, as a client reads them: in the last line or
    event that has them."""
    for line in reversed(content.splitlines()):
        text = line.removeprefix(b"data: ")
        found = json.loads(text) if text.startswith(b"{") else {}
        if "prompt_eval_count" in found:
            return found["prompt_eval_count"], found["eval_count"]
        if found.get("usage"):
            return found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"]
    raise AssertionError(content)


class SdkSender:
    """By the clients that OpenAI and Ollama publish: a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._pending: dict[int, asyncio.Future[Ended]] = {}
        self._sent = 0

    @classmethod
    @asynccontextmanager
    async def running(cls, url: str) -> AsyncIterator[SdkSender]:
        """Skips the test where no package index can be reached."""
        words = await with_package(f"{OPENAI},{OLLAMAS_PACKAGE}", "python", "-P", SDK_CLIENTS, url)
        process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
        sender = cls(process)
        reading = asyncio.create_task(sender._read())
        try:
            yield sender
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()
            await reading

    async def send(self, request: Request) -> Ended:
        assert self._process.stdin is not None
        self._sent += 1
        number = self._sent
        ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._pending[number] = ended
        line = json.dumps({"id": number, **asdict(request)})
        self._process.stdin.write(line.encode() + b"\n")
        return await ended

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            found = json.loads(line)
            self._pending.pop(found.pop("id")).set_result(Ended(**found))
        for pending in self._pending.values():
            pending.set_exception(RuntimeError("the program of the clients ended"))


@asynccontextmanager
async def sender_of(kind: str, stack: Stack) -> AsyncIterator[Sender]:
    """One of `SENDERS`."""
    if kind == "plain":
        yield PlainSender(stack)
    else:
        async with SdkSender.running(stack.url("")) as sender:
            yield sender


@dataclass(kw_only=True)
class MixedLoad:
    """`clients` clients send at least `requests` requests, each its next one when one has ended."""

    sender: Sender
    random: Random
    clients: int
    requests: int
    tokens: int = 40
    patience_s: float = 0.05
    asked: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    served_by: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The path and the endpoint of the served ones."""

    async def run(self, may_end: Callable[[], bool] = lambda: True) -> None:
        """Until there were that many requests, and `may_end` says yes."""
        await asyncio.gather(*(self._client(may_end) for _ in range(self.clients)))

    async def _client(self, may_end: Callable[[], bool]) -> None:
        while self.asked < self.requests or not may_end():
            self.asked += 1
            request = request_of(self.random, tokens=self.tokens, patience_s=self.patience_s)
            ended = await self.sender.send(request)
            self.outcomes[ended.outcome] += 1
            if ended.outcome == "served":
                self.served_by[request.path, ended.endpoint] += 1

    def served(self, endpoint: str) -> int:
        """How many requests an endpoint served."""
        return sum(count for (_, one), count in self.served_by.items() if one == endpoint)


@asynccontextmanager
async def drained(stack: Stack, endpoint: str) -> AsyncIterator[None]:
    """It has no request, and gets none until the end."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{stack.admin_port}") as channel:
        admin = AdminStub(channel)
        async for _ in admin.Drain(pb.DrainRequest(address=endpoint)):
            pass
        yield
        await admin.Activate(pb.ActivateRequest(address=endpoint))
