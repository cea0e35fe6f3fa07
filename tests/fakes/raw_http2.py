"""One HTTP/2 request frame by frame: with trailers, or with others beside it that are none."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass

ANSWER_TIMEOUT_S = 10.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END_STREAM, END_HEADERS = 1, 4
MAX_DATA_BYTES = 16_384
WINDOW_BYTES = 65_535
"""What may be sent before the other side has said more; nothing here reads what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Answer:
    """The body of the answer. Its headers come compressed, and are left so; `is_reset` tells
    that it broke off."""

    body: bytes
    is_reset: bool = False


class Http2Request:
    """A POST whose parts are sent when the test says so, over a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._streams = 1

    @classmethod
    async def begin(cls, port: int, path: str, headers: Mapping[str, str]) -> Http2Request:
        """Connect to loopback and send the headers."""
        request = cls(*await asyncio.open_connection("127.0.0.1", port))
        pseudo = {":method": "POST", ":scheme": "http", ":authority": "test", ":path": path}
        request._writer.write(PREFACE + _frame(SETTINGS, 0, 0, b""))
        request._send(HEADERS, END_HEADERS, _block(pseudo | dict(headers)))
        return request

    def send_body(self, body: bytes) -> None:
        """Without its end."""
        assert len(body) <= WINDOW_BYTES
        for start in range(0, len(body), MAX_DATA_BYTES):
            self._send(DATA, 0, body[start : start + MAX_DATA_BYTES])

    def end(self) -> None:
        self._send(DATA, END_STREAM, b"")

    async def refuses_beside(self, headers: Mapping[str, str]) -> bool:
        """Send another whole request on the same connection, and wait for its end. Returns
        whether that was a reset; raises `IncompleteReadError` if the connection ended with it."""
        self._streams += 2
        pseudo = {":method": "GET", ":scheme": "http", ":authority": "test", ":path": "/health"}
        block = _block(pseudo | dict(headers))
        self._writer.write(_frame(HEADERS, END_STREAM | END_HEADERS, self._streams, block))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            while True:
                kind, flags, stream, _ = await self._next_frame()
                if stream == self._streams and (kind == RST_STREAM or flags & END_STREAM):
                    return kind == RST_STREAM

    def end_with_trailers(self) -> None:
        self._send(HEADERS, END_STREAM | END_HEADERS, _block({"x-checksum": "1"}))

    async def answer(self) -> Http2Answer:
        """Read until the answer is over, and hang up."""
        body = b""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                while True:
                    kind, flags, stream, payload = await self._next_frame()
                    if stream != 1:
                        continue
                    if kind == RST_STREAM:
                        return Http2Answer(body=body, is_reset=True)
                    if kind == DATA:
                        body += payload
                    if kind in (DATA, HEADERS) and flags & END_STREAM:
                        return Http2Answer(body=body)
        finally:
            self._writer.transport.abort()

    async def _next_frame(self) -> tuple[int, int, int, bytes]:
        head = await self._reader.readexactly(9)
        payload = await self._reader.readexactly(int.from_bytes(head[:3]))
        return head[3], head[4], int.from_bytes(head[5:]), payload

    def _send(self, kind: int, flags: int, payload: bytes) -> None:
        self._writer.write(_frame(kind, flags, 1, payload))


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _block(headers: Mapping[str, str]) -> bytes:
    """Header fields as HPACK literals that nobody has to remember."""
    return b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in headers.items()
    )
