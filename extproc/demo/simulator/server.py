"""The simulated server: which path does what."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from extproc.demo.simulator import responses as shapes
from extproc.demo.simulator.body import (
    MAX_CHOICES,
    BadRequestError,
    NotSupportedError,
    read_messages,
    read_object,
    read_prompt,
    read_whole,
    wants_usage,
)
from extproc.demo.simulator.dialect import CHAT, TEXT, Dialect
from extproc.demo.simulator.http import Answer, HttpServer, Request
from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.slots import Slots, Task

_PUBLIC = frozenset({"/health", "/v1/health"})
_DONE = b"data: [DONE]\n\n"

Json = dict[str, Any]


class Simulator:
    """One simulated llama-server; `start` it, `close` it, both in one event loop."""

    def __init__(self, options: SimulatorOptions | None = None) -> None:
        self.options = options or SimulatorOptions()
        self.slots = Slots(
            self.options.slots, prompt_tokens_per_second=self.options.prompt_tokens_per_second
        )
        self._source = random.Random(self.options.seed)
        self._http = HttpServer(self._handle)
        self._ready_at = 0.0
        self._started_at = 0
        get, post = "GET", "POST"
        self._routes: dict[tuple[str, str], Callable[[Request], Awaitable[Answer]]] = {
            (get, "/health"): self._health,
            (get, "/v1/health"): self._health,
            (get, "/props"): self._props,
            (get, "/slots"): self._slots,
            (get, "/models"): self._models,
            (get, "/v1/models"): self._models,
            (get, "/lora-adapters"): self._adapters,
            (get, "/metrics"): self._no_metrics,
            (post, "/tokenize"): self._tokenize,
            (post, "/completion"): self._completion,
            (post, "/completions"): self._completion,
            (post, "/v1/completions"): self._text_completion,
            (post, "/chat/completions"): self._chat_completion,
            (post, "/v1/chat/completions"): self._chat_completion,
            (post, "/embedding"): self._embedding,
            (post, "/embeddings"): self._embedding,
            (post, "/v1/embeddings"): self._openai_embedding,
        }

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen and begin to load; returns the port. Raises `OSError` when it is taken."""
        self._started_at = int(time.time())
        self._ready_at = asyncio.get_running_loop().time() + self.options.load_s
        return await self._http.start(host, port)

    async def close(self) -> None:
        """Stop at once: connections are cut, tasks dropped."""
        await self._http.close()
        await self.slots.close()

    async def _handle(self, request: Request) -> Answer:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        route = self._routes.get((request.method, request.path))
        if route is None:
            return Answer.of(shapes.error(404, "not_found_error", "File Not Found"), 404)
        try:
            return await route(request)
        except BadRequestError as error:
            return Answer.of(shapes.error(error.status, error.kind, str(error)), error.status)

    def _refusal(self, request: Request) -> Answer | None:
        wanted = self.options.api_key
        if wanted is not None and request.path not in _PUBLIC:
            given = request.headers.get("authorization") or request.headers.get("x-api-key", "")
            if not secrets.compare_digest(
                given.removeprefix("Bearer ").encode("latin-1"), wanted.encode()
            ):
                body = shapes.error(401, "authentication_error", "Invalid API Key")
                return Answer.of(body, 401)
        if asyncio.get_running_loop().time() < self._ready_at:
            return Answer.of(shapes.error(503, "unavailable_error", "Loading model"), 503)
        return None

    async def _health(self, _: Request) -> Answer:
        return Answer.of({"status": "ok"})

    async def _props(self, _: Request) -> Answer:
        return Answer.of(shapes.props(self.options))

    async def _models(self, _: Request) -> Answer:
        return Answer.of(shapes.models(self.options, self._started_at))

    async def _adapters(self, _: Request) -> Answer:
        return Answer.of([])

    async def _no_metrics(self, _: Request) -> Answer:
        raise NotSupportedError(
            "This server does not support metrics endpoint. Start it with `--metrics`"
        )

    async def _slots(self, request: Request) -> Answer:
        if not self.options.shows_slots:
            raise NotSupportedError(
                "This server does not support slots endpoint. Start it with `--slots`"
            )
        # As the real one, it finds time for this only between two steps.
        await self.slots.between_steps()
        is_full = all(slot.is_processing for slot in self.slots.all)
        if "fail_on_no_slot" in request.query and is_full:
            return Answer.of(shapes.error(503, "unavailable_error", "no slot available"), 503)
        return Answer.of(shapes.slots(self.slots, self.options))

    async def _tokenize(self, request: Request) -> Answer:
        content = read_object(request.body).get("content", "")
        return Answer.of({"tokens": list(str(content).encode())})

    async def _completion(self, request: Request) -> Answer:
        body = read_object(request.body)
        tasks = self._tasks(body, read_prompt(body))

        async def events() -> AsyncGenerator[bytes, None]:
            with self._running(tasks):
                if self.options.has_early_headers:
                    yield b""
                async for number in tasks[0].steps():
                    text = shapes.word(tasks[0], number)
                    yield _event(shapes.completion_event(tasks[0], number, text))
                yield _event(shapes.completion(tasks[0], self.options, content=""))

        if body.get("stream"):
            return Answer(chunks=events(), content_type="text/event-stream")
        await self._finished(tasks)
        answers = [
            shapes.completion(task, self.options, content=_text(task)) | {"index": index}
            for index, task in enumerate(tasks)
        ]
        return Answer.of(answers[0] if len(answers) == 1 else answers)

    async def _text_completion(self, request: Request) -> Answer:
        body = read_object(request.body)
        return await self._openai(body, read_prompt(body), TEXT)

    async def _chat_completion(self, request: Request) -> Answer:
        body = read_object(request.body)
        return await self._openai(body, read_messages(body), CHAT)

    async def _openai(self, body: Json, prompt: bytes, dialect: Dialect) -> Answer:
        tasks = self._tasks(body, prompt)
        identity = f"chatcmpl-{secrets.token_urlsafe(24)}"
        if body.get("stream"):
            events = self._openai_events(tasks, identity, dialect, has_usage=wants_usage(body))
            return Answer(chunks=events, content_type="text/event-stream")
        await self._finished(tasks)
        choices = [dialect.whole(index, _text(task)) for index, task in enumerate(tasks)]
        told = {"usage": shapes.usage(tasks), "timings": shapes.timings(tasks[0])}
        return Answer.of(shapes.openai(dialect.kind, identity, self.options, choices) | told)

    async def _openai_events(
        self, tasks: list[Task], identity: str, dialect: Dialect, *, has_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        def event(choices: list[Json], told: Json) -> bytes:
            frame = shapes.openai(dialect.streamed_kind, identity, self.options, choices)
            return _event(frame | told)

        with self._running(tasks):
            if self.options.has_early_headers:
                yield b""
            # Several answers come one after the other; they are generated side by side.
            for index, task in enumerate(tasks):
                async for number in task.steps():
                    if number == 0 and dialect.opening is not None:
                        yield event([dialect.opening(index)], {})
                    yield event([dialect.part(index, shapes.word(task, number))], {})
                told = {"timings": shapes.timings(task)}
                if dialect is TEXT:
                    told["usage"] = shapes.usage([task])
                yield event([dialect.last(index)], told)
            if has_usage and dialect is CHAT:
                yield event([], {"usage": shapes.usage(tasks)})
            yield _DONE

    async def _embedding(self, request: Request) -> Answer:
        body = read_object(request.body)
        texts = await self._embedded(body.get("content", body.get("input")))
        return Answer.of(
            [
                {"index": index, "embedding": [shapes.embedding(text)]}
                for index, text in enumerate(texts)
            ]
        )

    async def _openai_embedding(self, request: Request) -> Answer:
        texts = await self._embedded(read_object(request.body).get("input"))
        data = [
            {"embedding": shapes.embedding(text), "index": index, "object": "embedding"}
            for index, text in enumerate(texts)
        ]
        read = sum(len(text) + 1 for text in texts)
        usage = {"prompt_tokens": read, "total_tokens": read}
        told = {"model": self.options.alias, "object": "list", "usage": usage, "data": data}
        return Answer.of(told | {"system_fingerprint": shapes.FINGERPRINT})

    async def _embedded(self, given: object) -> list[bytes]:
        """Take each input through a slot of its own, as llama-server does."""
        if not self.options.gives_embeddings:
            raise NotSupportedError(
                "This server does not support embeddings. Start it with `--embeddings`"
            )
        inputs = given if isinstance(given, list) else [given]
        if given is None or not 1 <= len(inputs) <= MAX_CHOICES:
            raise BadRequestError(f'"input" or "content" of 1 to {MAX_CHOICES} texts is required')
        texts = [str(text).encode() for text in inputs]
        answer_s = self.options.service_time_s or 0.0
        await self._finished(
            [Task(prompt=text, tokens=0, answer_s=answer_s, params={}) for text in texts]
        )
        return texts

    def _tasks(self, body: Json, prompt: bytes) -> list[Task]:
        """One task for each answer that is asked for."""
        count = read_whole(body, ("n", "n_cmpl"), 1)
        if not 1 <= count <= MAX_CHOICES:
            raise BadRequestError(f"n: 1 to {MAX_CHOICES} answers can be asked for")
        room = self.options.context_tokens - len(prompt) - 1
        if room < 1:
            raise BadRequestError(
                f"request ({len(prompt) + 1} tokens) exceeds the available context size "
                f"({self.options.context_tokens} tokens)"
            )
        wanted = read_whole(body, ("max_completion_tokens", "max_tokens", "n_predict"), -1)
        tokens = min(room, wanted if wanted >= 1 else self.options.answer_tokens)
        params: Json = {"stream": bool(body.get("stream"))}
        return [
            Task(
                prompt=prompt,
                tokens=tokens,
                answer_s=self.options.draw_answer_s(tokens, self._source),
                params=params,
            )
            for _ in range(count)
        ]

    async def _finished(self, tasks: list[Task]) -> None:
        with self._running(tasks):
            for task in tasks:
                await task.ended()

    @contextmanager
    def _running(self, tasks: list[Task]) -> Iterator[None]:
        """Submit the tasks; whatever ends the block first, none goes on for nobody."""
        for task in tasks:
            self.slots.submit(task)
        try:
            yield
        finally:
            for task in tasks:
                if not task.is_ended:
                    self.slots.cancel(task)


def _text(task: Task) -> str:
    return "".join(shapes.word(task, number) for number in range(task.decoded))


def _event(value: Json) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
