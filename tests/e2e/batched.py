"""A stack with the process of batches beside it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from extproc.demo.port import free_port
from extproc.demo.process import Child
from tests.e2e.stack import CHAT, READY_S, Stack, chat, until

OBJECTIVE = {"batch": {"criticality": "sheddable"}}


def lines(count: int, tokens: int = 8) -> bytes:
    """The input of a batch of chats."""
    return b"".join(
        json.dumps(
            {
                "custom_id": f"line-{number}",
                "method": "POST",
                "url": CHAT,
                "body": chat(tokens, content=f"row {number}"),
            }
        ).encode()
        + b"\n"
        for number in range(count)
    )


@dataclass
class Batches:
    """The process, which can be killed and started again with the same file."""

    stack: Stack
    port: int
    client: httpx.AsyncClient
    options: tuple[str, ...] = ()
    child: Child | None = None
    starts: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.stack.envoy_port}"

    @property
    def store(self) -> Path:
        return self.stack.folder / "batches.db"

    async def start(self) -> None:
        self.starts += 1
        self.child = await self.stack.children.start(
            f"batches-{self.starts}",
            [
                *(sys.executable, "-m", "extproc.cli", "batch", "run", "--store", self.store),
                *("--picker", f"127.0.0.1:{self.stack.admin_port}", "--url", self.url),
                *("--listen", f"127.0.0.1:{self.port}", *self.options),
            ],
        )
        await self.child.wait_ready(self._is_there, timeout_s=READY_S)

    async def _is_there(self) -> bool:
        try:
            answer = await self.client.get(f"http://127.0.0.1:{self.port}/healthz")
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    async def submit(self, content: bytes) -> str:
        """Through Envoy; the id of the batch."""
        form = {"file": ("in.jsonl", content)}
        sent = await self.client.post(f"{self.url}/v1/files", files=form, data={"purpose": "batch"})
        assert sent.status_code == 200, sent.text
        body = {
            "input_file_id": sent.json()["id"],
            "endpoint": CHAT,
            "completion_window": "24h",
        }
        made = await self.client.post(f"{self.url}/v1/batches", json=body)
        assert made.status_code == 200, made.text
        return str(made.json()["id"])

    async def batch(self, id_: str) -> dict[str, Any]:
        answer = await self.client.get(f"{self.url}/v1/batches/{id_}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def until_done(self, id_: str, count: int) -> None:
        """Wait until so many lines have a result."""

        async def is_so() -> bool:
            counts = (await self.batch(id_))["request_counts"]
            return bool(counts["completed"] + counts["failed"] >= count)

        await until(is_so)

    async def until_ended(self, id_: str) -> dict[str, Any]:
        async def is_so() -> bool:
            return bool((await self.batch(id_))["status"] != "in_progress")

        await until(is_so)
        return await self.batch(id_)

    async def content(self, file: str) -> list[dict[str, Any]]:
        answer = await self.client.get(f"{self.url}/v1/files/{file}/content")
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


@asynccontextmanager
async def batching(
    folder: Path,
    *,
    options: Iterable[str] = (),
    settings: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Batches]:
    """A stack of its own with batches; the arguments are those of `Stack.running`."""
    port = free_port()
    settings = {"objectives": OBJECTIVE, **(settings or {})}
    settings["envoy"] = {"batches": f"127.0.0.1:{port}", **settings.get("envoy", {})}
    async with Stack.running(folder, settings=settings, **more) as stack:
        batches = Batches(stack, port, stack.client, tuple(options))
        await batches.start()
        yield batches
        await asyncio.sleep(0)
