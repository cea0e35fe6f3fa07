"""A llama-server on loopback that says what a test tells it to: real HTTP, no model.

It answers /health, /props, /slots and /v1/models from its attributes, as llama-server
would. `fake.replies["/slots"]` replaces the answers to one path by a `Reply`: any status,
body and headers, late or never, cut off or dripping. Everything asked is in `fake.asked`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field, replace
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

from extproc.core.address import Address
from tests.fakes.listener import Listener

LOADING = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
UNAUTHORIZED = {"error": {"message": "Invalid API Key", "type": "authentication_error"}}


@dataclass(slots=True, kw_only=True)
class Reply:
    """One answer. `gate` holds it back until set; `cut_after` closes after that many bytes."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    gate: asyncio.Event | None = None
    cut_after: int | None = None

    @classmethod
    def of(cls, value: object, status: int = 200) -> Reply:
        return cls(status=status, body=json.dumps(value).encode())

    def encode(self) -> bytes:
        headers = {"Content-Length": str(len(self.body)), **self.headers}
        lines = [f"HTTP/1.1 {self.status} Scripted", *(f"{k}: {v}" for k, v in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes = b""


class FakeLlamaServer:
    """Use as `async with FakeLlamaServer() as fake:`. `busy` has one truth value per slot."""

    def __init__(
        self,
        busy: tuple[bool, ...] = (False, False),
        *,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.tls = tls
        self.busy = busy
        self.task = 0
        self.marker: str | None = "<__media_one__>"
        self.is_loading = False
        self.is_sleeping: bool | None = None
        self.api_key: str | None = None
        self.shows_slots = True
        self.shows_counters = False
        self.router_models: dict[str, str] | None = None
        """Name to status ("loaded", "unloaded", ...), which makes it a router."""
        self.autoloads = True
        self.max_instances = 4
        self.model_slots: dict[str, bytes] = {}
        """What a router's model answers /slots with, where it is not as `busy` says."""
        self.replies: dict[str, Reply] = {}
        self.asked: list[Asked] = []
        self.closes_after: int | None = None
        """How many answers a connection gives before it is closed without a word."""
        self.connections = 0
        self._port = port
        self._listener = Listener(self._talk)
        self._changed = asyncio.Event()

    async def __aenter__(self) -> FakeLlamaServer:
        self._port = (await self._listener.start(self._port, self.tls)).port
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._port)

    @property
    def open_connections(self) -> int:
        return self._listener.connections

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def count(self, path: str) -> int:
        return self.paths().count(path)

    def newest(self, path: str) -> Asked:
        """What came last for this path: looks and health checks go on beside what a test asks."""
        return next(asked for asked in reversed(self.asked) if asked.path == path)

    async def was_asked(self, path: str, times: int = 1) -> None:
        """Wait until `path` was asked that many times in all."""
        while self.count(path) < times:
            self._changed.clear()
            await self._changed.wait()

    async def had_no_connections(self) -> None:
        """Wait until every connection is closed."""
        await self._listener.had_no_connections()

    def break_connections(self) -> None:
        """Close every connection, as a killed process does; new ones are still taken."""
        self._listener.break_connections()

    async def stop(self) -> None:
        """Listen no more and break what is open: connections are rejected from now on."""
        await self._listener.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answered = 0
        while self.closes_after is None or answered < self.closes_after:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            asked = _parse(head)
            if length := int(asked.headers.get("content-length", "0")):
                asked = replace(asked, body=await reader.readexactly(length))
            self.asked.append(asked)
            self._changed.set()
            reply = self._reply_to(asked)
            if reply.gate is not None and not await _opened(reply.gate, reader):
                return
            writer.write(reply.encode()[: reply.cut_after])
            await writer.drain()
            if reply.cut_after is not None:
                return
            answered += 1

    def _reply_to(self, asked: Asked) -> Reply:
        scripted = self.replies.get(asked.path)
        if scripted is not None:
            return scripted
        if self.is_loading:
            return Reply.of(LOADING, 503)
        is_open = self.api_key is None or asked.path == "/health"
        if not is_open and asked.headers.get("authorization") != f"Bearer {self.api_key}":
            return Reply.of(UNAUTHORIZED, 401)
        match asked.path:
            case "/health":
                return Reply.of({"status": "ok"})
            case "/props":
                return Reply.of(self._props())
            case "/v1/models":
                return Reply.of({"object": "list", "data": self._models()})
            case "/slots":
                return self._slots(asked)
            case "/models/load" | "/models/unload" if self.router_models is not None:
                return self._load(asked)
            case _:
                return Reply.of({"error": {"code": 404}}, 404)

    def _props(self) -> dict[str, object]:
        if self.router_models is not None:
            return {
                "role": "router",
                "models_autoload": self.autoloads,
                "max_instances": self.max_instances,
                "build_info": "b1",
            }
        props: dict[str, object] = {
            "total_slots": len(self.busy),
            "model_alias": "fake",
            "model_path": "fake.gguf",
            "build_info": "b1",
            "endpoint_slots": self.shows_slots,
            "endpoint_metrics": self.shows_counters,
        }
        if self.marker is not None:
            props["media_marker"] = self.marker
        if self.is_sleeping is not None:
            props["is_sleeping"] = self.is_sleeping
        return props

    def _models(self) -> list[dict[str, object]]:
        if self.router_models is None:
            return [{"id": "fake", "aliases": ["fake", "pretend"]}]
        return [
            {"id": name, "aliases": [], "status": {"value": status, "args": ["llama-server"]}}
            for name, status in self.router_models.items()
        ]

    def _load(self, asked: Asked) -> Reply:
        """A load begins and a test ends it; an unload is over at once."""
        assert self.router_models is not None
        model = json.loads(asked.body)["model"]
        if model not in self.router_models:
            return Reply.of({"error": {"code": 404}}, 404)
        is_load = asked.path == "/models/load"
        self.router_models[model] = "loading" if is_load else "unloaded"
        return Reply.of({"success": True})

    def _slots(self, asked: Asked) -> Reply:
        if not self.shows_slots:
            return Reply.of({"error": {"code": 501}}, 501)
        if self.router_models is not None:
            (model,) = asked.query.get("model", [""])
            if self.router_models.get(model) != "loaded":
                return Reply.of({"error": {"code": 400}}, 400)
            if model in self.model_slots:
                return Reply(body=self.model_slots[model])
        self.is_sleeping = None if self.is_sleeping is None else False
        return Reply.of(
            [
                {"id": i, "n_ctx": 4096, "is_processing": busy, "id_task": self.task}
                for i, busy in enumerate(self.busy)
            ]
        )


async def _opened(gate: asyncio.Event, reader: asyncio.StreamReader) -> bool:
    """Wait for the gate; False when the connection ended first (nobody pipelines here)."""
    waits = {asyncio.ensure_future(gate.wait()), asyncio.ensure_future(reader.read(1))}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    return gate.is_set()


def _parse(head: str) -> Asked:
    request, *lines = head.split("\r\n")
    target = urlsplit(request.split(" ")[1])
    headers = dict(line.split(": ", 1) for line in lines if line)
    return Asked(
        path=target.path,
        query=parse_qs(target.query),
        headers={name.lower(): value for name, value in headers.items()},
    )
