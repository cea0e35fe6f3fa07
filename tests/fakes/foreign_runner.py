"""Servers of other kinds that serve: Ollama, vLLM, or nothing but OpenAI's API, on loopback.

They answer as `foreign_server.py` says, take their time for each token, and count what they did, so
that a test can compare. A client that leaves ends its request, as each of them does.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from extproc.demo.port import free_port
from tests.fakes.foreign_server import running, tag

TOKEN_S = 0.002
DEFAULT_TOKENS = 8
CRASH = {"error": "an error was encountered while running the model: unexpected EOF"}
"""Recorded from Ollama 0.17.4, whose runner was killed: the last line of a response with 200."""


class ForeignRunner:
    """`most` is the highest number of requests that it ran at once, `prompt` and `generated` are
    the tokens of the whole responses, `served` the number of those."""

    def __init__(
        self,
        kind: str,
        *models: str,
        most_loaded: int = 3,
        load_s: float = 0.0,
        tls: ssl.SSLContext | None = None,
        key: str = "",
    ) -> None:
        """An Ollama has all of `models` (`m` by default), at most `most_loaded` of them at once,
        and takes `load_s` to load one; of other kinds the first one is served. With a `key`, all
        others get 401."""
        self.kind, self.models = kind, models or ("m",)
        self.most_loaded, self.load_s, self._tls = most_loaded, load_s, tls
        self._key = key
        self.running = self.most = self.served = self.left = 0
        self.prompt = self.generated = 0
        self.limit: int | None = None
        """Above that many at once it answers 429, as providers do."""
        self.crash_after: int | None = None
        """After that many lines an Ollama says that the process of its model died."""
        self.retry_after = "1"
        self.rejected = 0
        self.heard: list[tuple[dict[str, str], dict[str, Any]]] = []
        """The headers and bodies of all chat requests."""
        self.asked: list[str] = []
        """The paths of all requests."""
        self.loaded: dict[str, int] = {}
        """The loaded models and how many requests each runs, that used last behind the others."""
        self.loads: list[str] = []
        """The models in the order in which they were loaded."""
        self.most_of: dict[str, int] = {}
        """The highest number of requests for each model that were here at once."""
        self._here: dict[str, int] = {}
        self._loading = asyncio.Lock()
        self._ended = asyncio.Condition()
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def model(self) -> str:
        return self.models[0]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ForeignRunner]:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        """At the port that it had before, if it had one."""
        app = web.Application(middlewares=[self._check_key])
        app.on_response_prepare.append(self._note)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        if self.kind == "ollama":
            for path in ("/api/chat", "/api/generate"):
                app.router.add_post(path, self._lines)
            app.router.add_post("/api/embed", self._embed)
            app.router.add_post("/api/show", self._show)
            app.router.add_get("/api/version", self._version)
            app.router.add_get("/api/tags", self._tags)
            app.router.add_get("/api/ps", self._running)
        if self.kind == "vllm":
            app.router.add_get("/metrics", self._metrics)
        self.port = self.port or free_port()  # which the kernel gives to nobody meanwhile
        # With 0 it would wait for its requests.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self._tls)
        await site.start()

    @web.middleware
    async def _check_key(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._key and request.headers.get("authorization") != f"Bearer {self._key}":
            error = {"message": "Incorrect API key provided", "code": "invalid_api_key"}
            return web.json_response({"error": error}, status=401)
        return await handler(request)

    async def _note(self, request: web.Request, _: web.StreamResponse) -> None:
        self.asked.append(request.path)

    async def stop(self) -> None:
        """Its connections break off."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    # What is served

    @asynccontextmanager
    async def _at_work(self, body: dict[str, Any]) -> AsyncIterator[None]:
        name = str(body.get("model", self.model)).removesuffix(":latest")
        self._here[name] = self._here.get(name, 0) + 1
        self.most_of[name] = max(self.most_of.get(name, 0), self._here[name])
        is_whole = False
        try:
            async with self._using(name):
                self.running += 1
                self.most = max(self.most, self.running)
                try:
                    yield
                    is_whole = True
                finally:
                    self.running -= 1
        finally:
            self._here[name] -= 1
            self.served += is_whole
            self.left += not is_whole

    @asynccontextmanager
    async def _using(self, name: str) -> AsyncIterator[None]:
        """As Ollama's scheduler (server/sched.go, 0.17.4): a request for a loaded model runs at
        once. One for another waits for the load before it, and until a model that makes way has no
        requests. A model that is being loaded is shown as loaded."""
        if name not in self.loaded:
            async with self._loading:
                if name not in self.loaded:
                    await self._load(name)
        self.loaded[name] = self.loaded.pop(name) + 1
        try:
            yield
        finally:
            self.loaded[name] -= 1
            async with self._ended:
                self._ended.notify_all()

    async def _load(self, name: str) -> None:
        while len(self.loaded) >= self.most_loaded:
            idle = [one for one, requests in self.loaded.items() if not requests]
            if idle:
                del self.loaded[idle[0]]
                break
            async with self._ended:
                await self._ended.wait()
        self.loaded[name] = 0
        self.loads.append(name)
        await asyncio.sleep(self.load_s)

    def _count(self, body: dict[str, Any]) -> tuple[int, int]:
        """The tokens of the prompt and of the response."""
        prompt = len(json.dumps(body.get("messages") or body.get("prompt") or body.get("input")))
        options = body.get("options") or {}
        return prompt, options.get("num_predict") or body.get("max_tokens") or DEFAULT_TOKENS

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.heard.append(({name.lower(): value for name, value in request.headers.items()}, body))
        if self.limit is not None and self.running >= self.limit:
            self.rejected += 1
            return web.json_response(
                {"error": {"message": "Rate limit reached", "type": "requests"}},
                status=429,
                headers={"retry-after": self.retry_after},
            )
        prompt, generated = self._count(body)
        usage = {"prompt_tokens": prompt, "completion_tokens": generated}
        usage["total_tokens"] = prompt + generated
        async with self._at_work(body):
            if not body.get("stream"):
                await asyncio.sleep(TOKEN_S * generated)
                message = {"role": "assistant", "content": "row " * generated}
                choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
                response: web.StreamResponse = web.json_response(
                    self._object("chat.completion", choices=choices, usage=usage)
                )
            else:
                response = web.StreamResponse(headers={"content-type": "text/event-stream"})
                await response.prepare(request)
                for _ in range(generated):
                    await asyncio.sleep(TOKEN_S)
                    choice = {"index": 0, "delta": {"content": "row "}, "finish_reason": None}
                    await self._event(response, choices=[choice])
        self._book(prompt, generated)
        if not isinstance(response, web.Response):
            await self._event(response, choices=[], usage=usage)
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        return response

    def _object(self, kind: str, **more: Any) -> dict[str, Any]:
        return {"id": "x", "object": kind, "created": 1, "model": self.model, **more}

    async def _event(self, response: web.StreamResponse, **more: Any) -> None:
        event = self._object("chat.completion.chunk", **more)
        await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _book(self, prompt: int, generated: int) -> None:
        self.prompt += prompt
        self.generated += generated

    async def _lines(self, request: web.Request) -> web.StreamResponse:
        """Ollama's own API: a stream unless it is said otherwise."""
        body = await request.json()
        is_chat = request.path == "/api/chat"
        prompt, generated = self._count(body)

        def line(text: str, *, done: bool, **more: Any) -> dict[str, Any]:
            message = {"role": "assistant", "content": text}
            found: dict[str, Any] = {"message": message} if is_chat else {"response": text}
            at = "2026-11-29T14:01:28.004966041Z"
            return {"model": body["model"], "created_at": at, **found, "done": done, **more}

        last = {"done_reason": "length", "prompt_eval_count": prompt, "eval_count": generated}
        async with self._at_work(body):
            if body.get("stream") is False:
                await asyncio.sleep(TOKEN_S * generated)
                text = "row " * generated
                response: web.StreamResponse = web.json_response(line(text, done=True, **last))
            else:
                response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
                await response.prepare(request)
                for number in range(generated):
                    if number == self.crash_after:
                        await response.write(json.dumps(CRASH).encode() + b"\n")
                        await response.write_eof()
                        return response
                    await asyncio.sleep(TOKEN_S)
                    await response.write(json.dumps(line("row ", done=False)).encode() + b"\n")
        self._book(prompt, generated)
        if not isinstance(response, web.Response):
            await response.write(json.dumps(line("", done=True, **last)).encode() + b"\n")
            await response.write_eof()
        return response

    async def _embed(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt, _ = self._count(body)
        async with self._at_work(body):
            await asyncio.sleep(TOKEN_S)
        self._book(prompt, 0)
        return web.json_response(
            {"model": body["model"], "embeddings": [[0.5, 0.25]], "prompt_eval_count": prompt}
        )

    # What is shown

    async def _models(self, _: web.Request) -> web.StreamResponse:
        more = {"max_model_len": 4096} if self.kind == "vllm" else {}
        names = self._tagged(self.models) if self.kind == "ollama" else [self.model]
        return web.json_response(
            {"object": "list", "data": [{"id": name, **more} for name in names]}
        )

    def _tagged(self, names: Iterable[str]) -> list[str]:
        return [f"{name}:latest" for name in names]

    async def _version(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"version": "0.17.4"})

    async def _show(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"details": {}, "model_info": {}, "capabilities": ["completion"]})

    async def _tags(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"models": list(map(tag, self._tagged(self.models)))})

    async def _running(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"models": list(map(running, self._tagged(self.loaded)))})

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        labels = f'{{engine="0",model_name="{self.model}"}}'
        return web.Response(
            text=f"vllm:num_requests_running{labels} {float(self.running)}\n"
            f"vllm:num_requests_waiting{labels} 0.0\n"
        )
