"""Stands before one server: records every request that reaches it, and fails on demand.

Envoy and the picker know only the front's address. It passes bytes on as they are; of a request
that takes a slot it reads the head, and of its response the head and the end. Envoy opens one
connection for each request, so one connection is one `Arrival`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from rigs.chaos.records import Arrival

READ_BYTES = 65_536
ENDLESS_PAUSE_S = 0.02
SLOW_PAUSE_S = 0.05


class Fault(Enum):
    """How a server fails requests that take a slot, while its health and slots look fine."""

    NONE = "none"
    ERROR_500 = "500"
    ERROR_503 = "503"
    RESET = "reset"
    GARBAGE = "garbage"
    HALF_JSON = "half-json"
    ENDLESS = "endless"
    SLOW = "slow"


_ERROR = b'{"error":{"code":%d,"message":"chaos","type":"server_error"}}'
_RAW = {
    Fault.RESET: b"",
    Fault.GARBAGE: bytes(range(128, 256)) * 4,
    Fault.HALF_JSON: b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    b'content-length: 4000\r\n\r\n{"choices":[{"index":0,"mess',
}
_CHUNK = b"data: {}\n\n"
_ENDLESS_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_ENDLESS_CHUNK = b"%x\r\n%s\r\n" % (len(_CHUNK), _CHUNK)


def _whole(status: int) -> bytes:
    body = _ERROR % status
    return (
        b"HTTP/1.1 %d Chaos\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        b"connection: close\r\n\r\n%s" % (status, len(body), body)
    )


class Front:
    """One server's door; `open` and `close` it as the server runs or not."""

    def __init__(
        self,
        port: int,
        backend: int,
        journal: list[Arrival],
        clock: Callable[[], float],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = f"127.0.0.1:{port}"
        self.fault = Fault.NONE
        self.is_hidden = False
        """Whether the picker's and agents' questions (all but requests and Envoy's health
        checks) are cut off."""
        self.open_requests = 0
        self._port = port
        self._backend = backend
        self._journal = journal
        self._clock = clock
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Listen; does nothing when it does."""
        if self._server is None:
            self._server = await asyncio.start_server(
                self._accept, "127.0.0.1", self._port, ssl=self._tls, backlog=1024
            )

    async def close(self) -> None:
        """As a killed server: nobody listens, and every connection is gone."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hide(self, is_hidden: bool) -> None:
        """Cut who scrapes this server off, or let them in again."""
        self.is_hidden = is_hidden
        if is_hidden:
            for writer in list(self._questions):
                writer.transport.abort()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve_safely(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_safely(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # who came is gone, or sent no request
        finally:
            self._questions.discard(writer)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        # Not when the connection came: Envoy may have opened it for a request that has left.
        at = self._clock()
        if head.startswith(b"POST "):
            arrival = Arrival(id=_header(head, b"x-request-id"), server=self.address, at=at)
            self._journal.append(arrival)
            self.open_requests += 1
            try:
                await self._answer(head, arrival, reader, writer)
            finally:
                arrival.closed_at = self._clock()
                self.open_requests -= 1
            return
        if b"envoy/hc" not in head.lower():
            self._questions.add(writer)
            if self.is_hidden:
                return
        await self._relay(head, reader, writer)

    async def _answer(
        self,
        head: bytes,
        arrival: Arrival,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        fault = self.fault
        if fault is not Fault.NONE:
            arrival.fault = fault.value
        if fault in (Fault.NONE, Fault.SLOW):
            saw = _Watch(arrival, self._clock).take
            await self._relay(head, reader, writer, saw, is_slow=fault is Fault.SLOW)
            return
        with suppress(ValueError):  # no length: a chunked body, of which some is enough
            await reader.readexactly(int(_header(head, b"content-length") or "-"))
        if fault is Fault.ENDLESS:
            arrival.status = 200
            writer.write(_ENDLESS_HEAD)
            left = asyncio.ensure_future(reader.read(1))
            try:
                while not left.done() and self.fault is Fault.ENDLESS:
                    writer.write(_ENDLESS_CHUNK)
                    await writer.drain()
                    await asyncio.sleep(ENDLESS_PAUSE_S)
            finally:
                left.cancel()
            return
        if fault in _RAW:
            writer.write(_RAW[fault])
            await writer.drain()
            if fault is Fault.RESET:
                writer.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            else:
                writer.close()  # what was written arrives, and then the end
                await writer.wait_closed()
            return
        arrival.status = int(fault.value)
        writer.write(_whole(arrival.status))
        arrival.is_whole, arrival.first_byte_at = True, self._clock()
        arrival.last_byte_at = arrival.first_byte_at
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def _relay(
        self,
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        saw: Callable[[bytes], None] | None = None,
        *,
        is_slow: bool = False,
    ) -> None:
        """Pass everything on, both ways, until either side closes."""
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._backend)
        try:
            to_writer.write(head)
            up = asyncio.ensure_future(_pump(reader, to_writer))
            down = asyncio.ensure_future(_pump(to_reader, writer, saw, is_slow=is_slow))
            try:
                await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
                if down.done() and not down.cancelled() and down.exception() is None:
                    writer.close()
                    await writer.wait_closed()
            finally:
                up.cancel()
                down.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
        finally:
            to_writer.transport.abort()


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    saw: Callable[[bytes], None] | None = None,
    *,
    is_slow: bool = False,
) -> None:
    while data := await reader.read(READ_BYTES):
        if is_slow:
            await asyncio.sleep(SLOW_PAUSE_S)
        if saw is not None:
            saw(data)
        writer.write(data)
        await writer.drain()


class _Watch:
    """Reads status and end of one response as it flows by."""

    def __init__(self, arrival: Arrival, clock: Callable[[], float]) -> None:
        self._arrival = arrival
        self._clock = clock
        self._head = b""
        self._is_chunked = False
        self._left = -1
        self._tail = b""

    def take(self, data: bytes) -> None:
        arrival = self._arrival
        arrival.last_byte_at = self._clock()
        arrival.first_byte_at = arrival.first_byte_at or arrival.last_byte_at
        if self._left < 0 and not self._is_chunked:
            self._head += data
            head, gap, data = self._head.partition(b"\r\n\r\n")
            if not gap:
                return
            arrival.status = int(head.split(b" ", 2)[1])
            self._is_chunked = _header(head, b"transfer-encoding") == "chunked"
            self._left = int(_header(head, b"content-length") or 0)
        if self._is_chunked:
            self._tail = (self._tail + data)[-5:]
            arrival.is_whole = self._tail == b"0\r\n\r\n"
        else:
            self._left -= len(data)
            arrival.is_whole = self._left <= 0


def _header(head: bytes, name: bytes) -> str:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip().decode("latin-1")
    return ""
