"""A small HTTP/1.1 server that remembers what reached it and answers as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from extproc.demo.simulator.listener import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """One request that arrived; `/health` is not counted."""

    method: str
    target: str
    headers: dict[str, str]
    body_bytes: int


@dataclass(slots=True, kw_only=True)
class EchoServer:
    """`status` answers everything but `/health`, which answers `health_status`.

    A request to a path that ends in `/stream` is answered with chunks until `stop_streaming`
    is set, or until `break_off` is set, which cuts the connection in the middle. A path that
    ends in `/silent` is never answered.
    """

    port: int = 0
    status: int = 200
    health_status: int = 200
    reached: list[Reached] = field(default_factory=list)
    stop_streaming: asyncio.Event = field(default_factory=asyncio.Event)
    break_off: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._answer(await _read(reader), writer)

    async def _answer(self, request: Reached, writer: asyncio.StreamWriter) -> None:
        if request.target == "/health":
            _write(writer, self.health_status, b"{}")
        else:
            self.reached.append(request)
            if request.target.endswith("/silent"):
                return
            if request.target.endswith("/stream"):
                await self._stream(writer)
            else:
                _write(writer, self.status, str(self.port).encode())
        await writer.drain()

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
async def echo_server() -> AsyncIterator[EchoServer]:
    """Run one on a free port of loopback."""
    echo = EchoServer()
    listener = Listener(echo.talk)
    echo.port = (await listener.start()).port
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
    body_bytes = int(headers.get("content-length", "0"))
    await reader.readexactly(body_bytes)
    return Reached(method=method, target=target, headers=headers, body_bytes=body_bytes)


def _write(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
