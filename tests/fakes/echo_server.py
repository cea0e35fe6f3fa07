"""A small HTTP/1.1 server that remembers what reached it and answers as it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from extproc.demo.port import LOOPBACK
from tests.fakes.listener import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """One request that arrived; the picker's own are not counted."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def body_bytes(self) -> int:
        return len(self.body)


@dataclass(slots=True, kw_only=True)
class EchoServer:
    """`status` answers everything but `/health`, which answers `health_status`. The header
    `x-echo` of its answers is its address. With `slots` it says of itself what an idle
    llama-server would.

    A request to a path that ends in `/stream` is answered with chunks until `stop_streaming`
    is set, or until `break_off` is set, which cuts the connection in the middle. A path that
    ends in `/silent` is never answered.
    """

    host: str = LOOPBACK
    port: int = 0
    slots: int = 0
    status: int = 200
    health_status: int = 200
    reached: list[Reached] = field(default_factory=list)
    stop_streaming: asyncio.Event = field(default_factory=asyncio.Event)
    break_off: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def _looks(self) -> dict[str, object]:
        if not self.slots:
            return {}
        return {
            "/slots": [{"id": i, "n_ctx": 4096, "is_processing": False} for i in range(self.slots)],
            "/props": {"total_slots": self.slots, "model_alias": "echo", "build_info": "b1"},
            "/v1/models": {"object": "list", "data": [{"id": "echo", "aliases": []}]},
        }

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._answer(await _read(reader), writer)

    async def _answer(self, request: Reached, writer: asyncio.StreamWriter) -> None:
        path = request.target.partition("?")[0]
        if path == "/health":
            self._write(writer, self.health_status, b"{}")
        elif request.method == "GET" and path in (scrapes := self._looks):
            self._write(writer, 200, json.dumps(scrapes[path]).encode())
        else:
            self.reached.append(request)
            if request.target.endswith("/silent"):
                return
            if request.target.endswith("/stream"):
                await self._stream(writer)
            else:
                self._write(writer, self.status, str(self.port).encode())
        await writer.drain()

    def _write(self, writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
        head = (
            f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\n"
            f"x-echo: {self.address}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        while not self.stop_streaming.is_set():
            if self.break_off.is_set():
                writer.transport.abort()
                raise ConnectionResetError
            writer.write(b"a\r\ndata: {}\n\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write(b"0\r\n\r\n")


@asynccontextmanager
async def echo_server(
    host: str = LOOPBACK, port: int = 0, *, slots: int = 0
) -> AsyncIterator[EchoServer]:
    """Run one on an address of loopback, on a free port unless one is named."""
    echo = EchoServer(host=host, slots=slots)
    listener = Listener(echo.talk)
    echo.port = (await listener.start(port, host=host)).port
    try:
        yield echo
    finally:
        await listener.close()


async def _read(reader: asyncio.StreamReader) -> Reached:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *rest = head.strip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in rest)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await _read_body(reader, headers)
    return Reached(method=method, target=target, headers=headers, body=body)


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body
