"""The ways in which clients leave a response, over HTTP/1.1 and HTTP/2. Those of Node are its own
clients' (`rigs.node_client`).

Envoy flags most of them as errors. A reset of an HTTP/2 stream without an error, as Node sends it
by default, looks like a good end to whom looks for errors alone.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import Final

import h2.connection
import h2.errors
import h2.events

READ_BYTES: Final = 65_536
GONE_S: Final = 10.0
"""A connection that is not closed so long after a half-close is cut."""


class Way(Enum):
    """How a client leaves."""

    FIN = "fin"
    RESET = "reset"
    HALF_CLOSE = "half-close"
    H2_FIN = "h2-fin"
    H2_RESET = "h2-reset"
    H2_HALF_CLOSE = "h2-half-close"
    H2_GOAWAY = "h2-goaway"
    H2_NO_ERROR = "h2-rst-0"
    H2_INTERNAL_ERROR = "h2-rst-2"
    H2_STREAM_CLOSED = "h2-rst-5"
    H2_CANCEL = "h2-rst-8"
    NODE_CLOSE = "node-close"
    NODE_DESTROY = "node-destroy"
    NODE_SESSION_CLOSE = "node-session-close"
    NODE_SESSION_DESTROY = "node-session-destroy"
    NODE_HTTP1 = "node-http1"
    NODE_FETCH = "node-fetch"

    @property
    def is_http2(self) -> bool:
        return self.value.startswith("h2-")

    @property
    def is_of_node(self) -> bool:
        return self.value.startswith("node-")


NODE_WAYS: Final = tuple(way for way in Way if way.is_of_node)
WAYS: Final = tuple(way for way in Way if not way.is_of_node)
_CODES: Final = {
    Way.H2_NO_ERROR: h2.errors.ErrorCodes.NO_ERROR,
    Way.H2_INTERNAL_ERROR: h2.errors.ErrorCodes.INTERNAL_ERROR,
    Way.H2_STREAM_CLOSED: h2.errors.ErrorCodes.STREAM_CLOSED,
    Way.H2_CANCEL: h2.errors.ErrorCodes.CANCEL,
}
_RESETS: Final = frozenset({Way.RESET, Way.H2_RESET})
_HALF_CLOSES: Final = frozenset({Way.HALF_CLOSE, Way.H2_HALF_CLOSE})


async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    """Leave the connection, unless the other side has broken it."""
    if writer.is_closing():  # uvloop raises `RuntimeError` for what is done to it
        return
    if way in _RESETS:
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif way in _HALF_CLOSES:
        with suppress(OSError, TimeoutError):
            writer.write_eof()
            async with asyncio.timeout(GONE_S):
                while await reader.read(READ_BYTES):
                    pass
    writer.transport.abort()


class Http2Call:
    """One request on a connection of its own. Raises `OSError` if the connection ends before the
    response, or Envoy resets its stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h2.connection.H2Connection()
        self._id = 0
        self.status = 0
        """0 until the response has begun."""
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_whole = False

    @classmethod
    async def open(cls, host: str, port: int) -> Http2Call:
        """Connect."""
        return cls(*await asyncio.open_connection(host, port))

    def send(self, path: str, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Send the request; its body must fit into the first windows (64 KiB)."""
        protocol = self._protocol
        protocol.initiate_connection()
        self._id = protocol.get_next_available_stream_id()
        pseudo = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "rig")]
        protocol.send_headers(self._id, [*pseudo, *headers])
        for start in range(0, len(body), 16_384):
            protocol.send_data(self._id, body[start : start + 16_384])
        protocol.end_stream(self._id)
        self._flush()

    async def read_on(self) -> None:
        """Read to the end of the response."""
        while not self.is_whole:
            received = await self._reader.read(READ_BYTES)
            if not received:
                raise ConnectionResetError("closed before the end of the response")
            for event in self._protocol.receive_data(received):
                self._take(event)
            self._flush()

    async def leave(self, way: Way) -> None:
        """Leave the response in this way, and then the connection, which says no more of it."""
        if self._writer.is_closing():
            return
        try:
            if way in _CODES:
                self._protocol.reset_stream(self._id, _CODES[way])
                self._protocol.ping(b"the last")
                self._flush()
                await self._until_answered()
            elif way is Way.H2_GOAWAY:
                self._protocol.close_connection()
                self._flush()
                await leave(self._reader, self._writer, Way.HALF_CLOSE)
        except OSError:
            pass
        finally:
            await leave(self._reader, self._writer, way)

    def _take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.ResponseReceived):
            fields = {name.decode(): value.decode() for name, value in event.headers or ()}
            self.status = int(fields.pop(":status"))
            self.headers = fields
        elif isinstance(event, h2.events.DataReceived):
            self.body += event.data or b""
            length = event.flow_controlled_length or 0
            self._protocol.acknowledge_received_data(length, self._id)
        elif isinstance(event, h2.events.StreamEnded):
            self.is_whole = True
        elif isinstance(event, h2.events.StreamReset):
            raise ConnectionResetError(f"the stream was reset with {event.error_code}")

    async def _until_answered(self) -> None:
        """Until Envoy has read all that was sent, if it reads at all."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GONE_S):
                while received := await self._reader.read(READ_BYTES):
                    events = self._protocol.receive_data(received)
                    if any(isinstance(event, h2.events.PingAckReceived) for event in events):
                        return

    def _flush(self) -> None:
        self._writer.write(self._protocol.data_to_send())
