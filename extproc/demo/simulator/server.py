"""The simulated server: its paths and their responses."""

import asyncio
import hashlib
import json
import random
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from extproc.demo.simulator import answers, responses
from extproc.demo.simulator.body import (
    MAX_CHOICES,
    BadRequestError,
    ContextExceededError,
    Json,
    NotSupportedError,
    read_documents,
    read_infill,
    read_input,
    read_messages,
    read_object,
    read_prompt,
    read_whole,
)
from extproc.demo.simulator.options import SimulatorOptions
from extproc.demo.simulator.slots import Slots, Task

_PUBLIC = frozenset({"/health", "/v1/health"})

_LENGTHS: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens", "n_predict")

ENDS_AFTER: Final = "simulated_answer_tokens"
"""The key of a body by which an answer ends before `max_tokens`, as those of models do: no picker
knows it."""

MAX_BODY_BYTES: Final = 64 * 1024 * 1024
MAX_LINE_BYTES: Final = 64 * 1024
BACKLOG: Final = 4096
KEEP_ALIVE_S: Final = 3600.0
CLOSE_S: Final = 0.01
"""How long a request may continue after `close`."""
SERVER_NAME: Final = "coxswain-simulator"


class Simulator:
    """One simulated llama-server; `start` it, `close` it, both in one event loop."""

    def __init__(self, options: SimulatorOptions | None = None) -> None:
        self.options = options or SimulatorOptions()
        self.slots = Slots(
            self.options.slots,
            prompt_tokens_per_second=self.options.prompt_tokens_per_second,
            pool_tokens=self.options.context_tokens if self.options.has_shared_context else None,
            kept_prompts=self.options.kept_prompts,
            logs_deferred=self.options.logs_deferred,
        )
        self._source = random.Random(self.options.seed)
        self._runner: web.AppRunner | None = None
        self._ready_at = 0.0
        self._started_at = 0

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen and begin to load; returns the port. Raises `OSError` if the port is in use."""
        self._started_at = int(time.time())
        self._ready_at = asyncio.get_running_loop().time() + self.options.load_s
        app = web.Application(middlewares=[self._answer], client_max_size=MAX_BODY_BYTES)
        app.on_response_prepare.append(_add_headers)
        app.add_routes(self._routes())
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            # A request whose client leaves is cancelled, also between two chunks.
            handler_cancellation=True,
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_LINE_BYTES,
            shutdown_timeout=CLOSE_S,
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, backlog=BACKLOG).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        """Stop at once: close all connections and end all tasks."""
        if self._runner is not None:
            await self._runner.cleanup()
        await self.slots.close()

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get("/health", self._health),
            web.get("/v1/health", self._health),
            web.get("/props", self._props),
            web.get("/slots", self._slots),
            web.get("/models", self._models),
            web.get("/v1/models", self._models),
            web.get("/lora-adapters", self._adapters),
            web.get("/metrics", self._metrics),
            web.post("/tokenize", self._tokenize),
            web.post("/detokenize", self._detokenize),
            web.post("/apply-template", self._apply_template),
            web.post("/completion", partial(self._completion, read_prompt)),
            web.post("/completions", partial(self._completion, read_prompt)),
            *self._both("/infill", partial(self._completion, read_infill)),
            web.post("/v1/completions", partial(self._answered, answers.TextCompletion)),
            *self._both("/chat/completions", partial(self._answered, answers.ChatCompletion)),
            web.post("/api/chat", partial(self._answered, answers.ChatCompletion)),
            *self._both("/messages", partial(self._answered, answers.Message)),
            *self._both("/responses", partial(self._answered, answers.Response)),
            *self._both("/audio/transcriptions", self._transcription),
            web.post("/embedding", self._embedding),
            web.post("/embeddings", self._embedding),
            web.post("/v1/embedding", self._openai_embedding),
            web.post("/v1/embeddings", self._openai_embedding),
            *self._both("/rerank", self._rerank),
            *self._both("/reranking", self._rerank),
            *self._both("/chat/completions/input_tokens", partial(self._counted, read_messages)),
            *self._both("/responses/input_tokens", partial(self._counted, read_input)),
            web.post("/v1/messages/count_tokens", partial(self._counted, read_messages)),
        ]

    @staticmethod
    def _both(path: str, handler: Handler) -> list[web.RouteDef]:
        """The path, and the same below /v1."""
        return [web.post(path, handler), web.post(f"/v1{path}", handler)]

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle each request, also for paths that do not exist."""
        rejection = self._rejection(request)
        if rejection is not None:
            return rejection
        try:
            return await handler(request)
        except BadRequestError as error:
            return _error(error.status, error.kind, str(error))
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
            return _error(404, "not_found_error", "File Not Found")
        except web.HTTPRequestEntityTooLarge:
            return _error(413, "invalid_request_error", "the body is too large")

    def _rejection(self, request: web.Request) -> web.Response | None:
        wanted = self.options.api_key
        if wanted is not None and request.path not in _PUBLIC:
            given = request.headers.get("authorization") or request.headers.get("x-api-key") or ""
            if not secrets.compare_digest(
                given.removeprefix("Bearer ").encode(errors="replace"), wanted.encode()
            ):
                return _error(401, "authentication_error", "Invalid API Key")
        if asyncio.get_running_loop().time() < self._ready_at:
            return _error(503, "unavailable_error", "Loading model")
        return None

    async def _health(self, _: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def _props(self, _: web.Request) -> web.Response:
        return _json(responses.props(self.options))

    async def _models(self, _: web.Request) -> web.Response:
        return _json(responses.models(self.options, self._started_at))

    async def _adapters(self, _: web.Request) -> web.Response:
        return _json([])

    async def _metrics(self, _: web.Request) -> web.Response:
        if not self.options.shows_metrics:
            raise NotSupportedError("metrics endpoint", "--metrics")
        return web.Response(text=responses.metrics(self.slots))

    async def _slots(self, request: web.Request) -> web.Response:
        if not self.options.shows_slots:
            raise NotSupportedError("slots endpoint", "--slots")
        # As in the real server, this waits for the end of a step.
        await self.slots.between_steps()
        is_full = all(slot.is_processing for slot in self.slots.all)
        if "fail_on_no_slot" in request.query and is_full:
            return _error(503, "unavailable_error", "no slot available")
        return _json(responses.slots(self.slots, self.options))

    async def _tokenize(self, request: web.Request) -> web.Response:
        content = read_object(await request.read()).get("content", "")
        return _json({"tokens": list(str(content).encode())})

    async def _detokenize(self, request: web.Request) -> web.Response:
        tokens = read_object(await request.read()).get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(each, int) for each in tokens):
            raise BadRequestError('"tokens" must be an array of integers')
        return _json({"content": bytes(each % 256 for each in tokens).decode(errors="replace")})

    async def _apply_template(self, request: web.Request) -> web.Response:
        prompt = read_messages(read_object(await request.read()))
        return _json({"prompt": prompt.decode() + "assistant:"})

    async def _counted(self, read: Callable[[Json], bytes], request: web.Request) -> web.Response:
        prompt = read(read_object(await request.read()))
        counted: Json = {"input_tokens": len(prompt) + 1}
        if not request.path.endswith("/count_tokens"):
            counted["object"] = "response.input_tokens"
        return _json(counted)

    async def _completion(
        self, read: Callable[[Json], bytes], request: web.Request
    ) -> web.StreamResponse:
        body = read_object(await request.read())
        tasks = self._tasks(body, read(body))

        async def events() -> AsyncGenerator[bytes, None]:
            with self._running(tasks):
                if self.options.has_early_headers:
                    yield b""
                async for number in tasks[0].steps():
                    yield answers.event(responses.completion_event(tasks[0], number))
                _check(tasks[0])
                yield answers.event(responses.completion(tasks[0], self.options, content=""))

        if body.get("stream"):
            return await _stream(request, events())
        await self._finished(tasks)
        found = [
            responses.completion(task, self.options, content=responses.text_of(task))
            | {"index": index}
            for index, task in enumerate(tasks)
        ]
        return _json(found[0] if len(found) == 1 else found)

    async def _answered(
        self, kind: type[answers.Answer], request: web.Request
    ) -> web.StreamResponse:
        return await self._answer_with(kind, read_object(await request.read()), request)

    async def _transcription(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        file = form.get("file")
        if not isinstance(file, web.FileField):
            raise BadRequestError("the form has no file")
        digest = hashlib.blake2b(file.file.read(), digest_size=16).hexdigest()
        body = {"file": digest, "stream": form.get("stream") == "true"}
        return await self._answer_with(answers.Transcription, body, request)

    async def _answer_with(
        self, kind: type[answers.Answer], body: Json, request: web.Request
    ) -> web.StreamResponse:
        tasks, answer = self._tasks(body, kind.prompt(body)), kind(body, self.options)
        if body.get("stream"):
            return await _stream(request, self._events(tasks, answer), answer.failed)
        await self._finished(tasks)
        return _json(answer.whole(tasks))

    async def _events(
        self, tasks: list[Task], answer: answers.Answer
    ) -> AsyncGenerator[bytes, None]:
        with self._running(tasks):
            if self.options.has_early_headers:
                yield b""
            # Several choices are sent one after the other; they are generated in parallel.
            for index, task in enumerate(tasks):
                async for number in task.steps():
                    if number == 0:
                        yield answer.task_began(index, task)
                    yield answer.part(index, responses.word(task, number))
                _check(task)
                yield answer.task_ended(index, task)
            yield answer.closed(tasks)

    async def _embedding(self, request: web.Request) -> web.Response:
        body = read_object(await request.read())
        texts = await self._embedded(body.get("content", body.get("input")))
        return _json(
            [
                {"index": index, "embedding": [responses.embedding(text)]}
                for index, text in enumerate(texts)
            ]
        )

    async def _openai_embedding(self, request: web.Request) -> web.Response:
        texts = await self._embedded(read_object(await request.read()).get("input"))
        data = [
            {"embedding": responses.embedding(text), "index": index, "object": "embedding"}
            for index, text in enumerate(texts)
        ]
        read = sum(len(text) + 1 for text in texts)
        usage = {"prompt_tokens": read, "total_tokens": read}
        fields = {"model": self.options.alias, "object": "list", "usage": usage, "data": data}
        return _json(fields | {"system_fingerprint": responses.FINGERPRINT})

    async def _rerank(self, request: web.Request) -> web.Response:
        body = read_object(await request.read())
        query, documents = read_documents(body)
        await self._embedded([query + document for document in documents])
        results = [
            {"index": index, "relevance_score": responses.similarity(query, document)}
            for index, document in enumerate(documents)
        ]
        results.sort(key=lambda result: result["relevance_score"], reverse=True)
        del results[max(1, read_whole(body, ("top_n",), len(results))) :]
        read = sum(len(query) + len(document) + 1 for document in documents)
        usage = {"prompt_tokens": read, "total_tokens": read}
        fields = {"model": self.options.alias, "object": "list", "usage": usage}
        return _json(fields | {"results": results})

    async def _embedded(self, given: object) -> list[bytes]:
        """Process each input in a slot of its own, as llama-server does."""
        if not self.options.gives_embeddings:
            raise NotSupportedError("embeddings", "--embeddings")
        inputs = given if isinstance(given, list) else [given]
        if given is None or not 1 <= len(inputs) <= MAX_CHOICES:
            raise BadRequestError(f'"input" or "content" of 1 to {MAX_CHOICES} texts is required')
        texts = [each if isinstance(each, bytes) else str(each).encode() for each in inputs]
        answer_s = self.options.service_time_s or 0.0
        await self._finished(
            [Task(prompt=text, tokens=0, answer_s=answer_s, params={}) for text in texts]
        )
        return texts

    def _tasks(self, body: Json, prompt: bytes) -> list[Task]:
        """One task for each requested choice."""
        count = read_whole(body, ("n", "n_cmpl"), 1)
        if not 1 <= count <= MAX_CHOICES:
            raise BadRequestError(f"n: 1 to {MAX_CHOICES} answers can be asked for")
        room = self.options.context_tokens - len(prompt) - 1
        if room < 1:
            raise BadRequestError(
                f"request ({len(prompt) + 1} tokens) exceeds the available context size "
                f"({self.options.context_tokens} tokens)"
            )
        limit = read_whole(body, _LENGTHS, -1)
        tokens = limit if limit >= 1 else self.options.answer_tokens
        ends_after = read_whole(body, (ENDS_AFTER,), 0)
        if ends_after >= 1:
            tokens = min(ends_after, limit) if limit >= 1 else ends_after
        tokens = min(room, tokens)
        params: Json = {"stream": bool(body.get("stream"))}
        tasks: list[Task] = []
        for _ in range(count):
            answer_s = self.options.draw_answer_s(tokens, self._source)
            parent = tasks[0] if tasks else None
            tasks.append(
                Task(prompt=prompt, tokens=tokens, answer_s=answer_s, params=params, parent=parent)
            )
        return tasks

    async def _finished(self, tasks: list[Task]) -> None:
        with self._running(tasks):
            for task in tasks:
                await task.ended()
                _check(task)

    @contextmanager
    def _running(self, tasks: list[Task]) -> Iterator[None]:
        """Submit the tasks, and cancel those that still run at the end of the block."""
        for task in tasks:
            self.slots.submit(task)
        try:
            yield
        finally:
            for task in tasks:
                if not task.is_ended:
                    self.slots.cancel(task)


def _check(task: Task) -> None:
    """Raise `ContextExceededError` if the task was killed."""
    if task.is_killed:
        raise ContextExceededError


_json = partial(web.json_response, dumps=partial(json.dumps, separators=(",", ":")))


def _error(status: int, kind: str, message: str) -> web.Response:
    error = {"code": status, "message": message, "type": kind}
    return _json({"error": error}, status=status)


async def _stream(
    request: web.Request,
    events: AsyncGenerator[bytes, None],
    failed: Callable[[Json], bytes] = answers.error_event,
) -> web.StreamResponse:
    """Send events when they are ready; the headers go with the first one. An error before it is a
    response of its own, a later one the last event."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    async with aclosing(events) as parts:
        try:
            async for part in parts:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(part)
        except ContextExceededError as error:
            if not response.prepared:
                raise
            body = {"code": error.status, "message": str(error), "type": error.kind}
            await response.write(failed(body))
    return response


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["server"] = SERVER_NAME
    if origin := request.headers.get("origin"):
        response.headers["access-control-allow-origin"] = origin
