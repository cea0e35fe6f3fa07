"""OpenAI's and Ollama's own Python clients, as a program in an environment of its own.

`python sdk_clients.py URL` reads requests from its standard input, one a line, as
`tests.e2e.mixed_load.Request` has them, sends each with the client of its API, all at once, and
prints how each ended. It imports nothing of this project.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextvars import ContextVar
from typing import Any

import ollama  # type: ignore[import-not-found]
import openai  # type: ignore[import-not-found]

ENDPOINT: ContextVar[str] = ContextVar("endpoint", default="")
TIMEOUT_S = 120.0


async def note_endpoint(response: Any) -> None:
    """Ollama's client shows no headers."""
    ENDPOINT.set(response.headers.get("x-coxswain-endpoint", ""))


HOOKS = {"response": [note_endpoint]}


class Clients:
    def __init__(self, url: str) -> None:
        self._url = url
        self._openai = openai.AsyncOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            max_retries=0,  # so that each request is sent once
            http_client=openai.DefaultAsyncHttpxClient(event_hooks=HOOKS, timeout=TIMEOUT_S),
        )
        self._ollama: dict[str, Any] = {}

    def _ollama_for(self, objective: str) -> Any:
        """It takes headers for all of its requests."""
        if objective not in self._ollama:
            self._ollama[objective] = ollama.AsyncClient(
                host=self._url, headers=headers(objective), event_hooks=HOOKS, timeout=TIMEOUT_S
            )
        return self._ollama[objective]

    async def send(self, request: dict[str, Any]) -> dict[str, Any]:
        """How one request ended, and the tokens of a whole response."""
        send = self._to_openai if request["path"].startswith("/v1/") else self._to_ollama
        tokens: tuple[int, int] | None = None
        outcome = "broken"
        try:
            async with asyncio.timeout(request["patience_s"]):
                tokens = await send(request, dict(request["body"]))
            outcome = "served" if tokens else "broken"
        except TimeoutError:
            outcome = "left"
        except (openai.APIStatusError, ollama.ResponseError) as error:
            outcome = "refused" if error.status_code == 503 else "broken"
        except Exception:  # noqa: BLE001 - its connection broke off: each client says it in its way
            outcome = "broken"
        prompt, generated = tokens or (0, 0)
        return {
            "id": request["id"],
            "outcome": outcome,
            "endpoint": ENDPOINT.get(),
            "prompt": prompt,
            "generated": generated,
        }

    async def _to_openai(
        self, request: dict[str, Any], body: dict[str, Any]
    ) -> tuple[int, int] | None:
        names = ("model", "messages", "max_tokens", "stream", "stream_options")
        known = {name: body.pop(name) for name in names if name in body}
        answer = await self._openai.chat.completions.create(
            **known, extra_body=body, extra_headers=headers(request["objective"])
        )
        usage = None
        if known.get("stream"):
            async for part in answer:
                usage = part.usage or usage
        else:
            usage = answer.usage
        return usage and (usage.prompt_tokens, usage.completion_tokens)

    async def _to_ollama(
        self, request: dict[str, Any], body: dict[str, Any]
    ) -> tuple[int, int] | None:
        client = self._ollama_for(request["objective"])
        call = client.chat if request["path"] == "/api/chat" else client.generate
        stream = body.pop("stream", True)
        answer = await call(**body, stream=stream)
        if not stream:
            return answer.prompt_eval_count, answer.eval_count
        last = None
        async for part in answer:
            last = part
        return last and last.done and (last.prompt_eval_count, last.eval_count)


def headers(objective: str) -> dict[str, str]:
    return {"x-gateway-inference-objective": objective} if objective else {}


async def main() -> None:
    loop, lines = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    clients = Clients(sys.argv[1])

    async def send(line: bytes) -> None:
        sys.stdout.write(json.dumps(await clients.send(json.loads(line))) + "\n")
        sys.stdout.flush()

    async with asyncio.TaskGroup() as group:
        while line := await lines.readline():
            group.create_task(send(line))


if __name__ == "__main__":
    asyncio.run(main())
