"""A client's side of HTTP/2 by python-hyper's `h2`, and of what gRPC puts into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings

from extproc.transport import Call, CallHandler, ServiceTable
from extproc.transport.grpc_connection import GrpcConnection
from extproc.transport.limits import TransportLimits
from extproc.transport.messages import prefix

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/test/Echo"),
    (":authority", "picker"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


class Timers:
    """Timers that a test fires."""

    def __init__(self) -> None:
        self.due: list[tuple[float, object]] = []

    def call_later(self, delay_s: float, function: object) -> Timers:
        self.due.append((delay_s, function))
        return self

    def cancel(self) -> None:
        self.due.clear()


class Echo:
    """Sends each message back; remembers what it was called with."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.received: list[bytes] = []
        self.is_half_closed = False
        self.is_gone = False

    def receive(self, message: bytes) -> None:
        self.received.append(message)
        self.call.send(message)

    def half_closed(self) -> None:
        self.is_half_closed = True
        self.call.finish(0)

    def gone(self) -> None:
        self.is_gone = True


@dataclass
class Answer:
    """What the client received on one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    data: bytes = b""
    reset: int | None = None
    is_ended: bool = False

    @property
    def messages(self) -> list[bytes]:
        found, rest = [], self.data
        while len(rest) >= 5:
            size = int.from_bytes(rest[1:5], "big")
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found

    @property
    def status(self) -> str | None:
        return {**self.headers, **self.trailers}.get("grpc-status")


class Pair:
    """A client and a server whose bytes a test carries over."""

    def __init__(
        self, limits: TransportLimits | None = None, table: ServiceTable | None = None
    ) -> None:
        self.now = 0.0
        self.timers = Timers()
        self.handlers: list[Echo] = []
        self.flushes = 0
        self.server = GrpcConnection(
            table if table is not None else {"/test/Echo": self._open},
            limits or TransportLimits(),
            self.now,
            self._flush_soon,
            self.timers.call_later,
            lambda function: function(),
        )
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.client = h2.connection.H2Connection(config)
        self.client.initiate_connection()
        self.answers: dict[int, Answer] = {}
        self.goaway: int | None = None
        self.reads = True

    def _open(self, call: Call) -> CallHandler:
        self.handlers.append(Echo(call))
        return self.handlers[-1]

    def _flush_soon(self) -> None:
        self.flushes += 1

    def request(self, headers: list[tuple[str, str]] | None = None) -> int:
        """Open a stream; returns its id."""
        stream_id: int = self.client.get_next_available_stream_id()
        self.client.send_headers(stream_id, headers or HEADERS)
        self.answers[stream_id] = Answer()
        return stream_id

    def say(self, stream_id: int, message: bytes) -> None:
        """Send a message that the windows allow."""
        self.client.send_data(stream_id, prefix(len(message)) + message)

    def carry(self, sizes: list[int] | None = None) -> None:
        """Carry bytes both ways until nothing is left, in pieces of these sizes."""
        while True:
            data = self.client.data_to_send()
            at = 0
            for size in sizes or []:
                if at >= len(data):
                    break
                self.server.receive(data[at : at + size], self.now)
                at += size
            if at < len(data):
                self.server.receive(data[at:], self.now)
            answer = self.server.http2.output.take()
            if answer:
                self._take(answer)
            if not data and not answer:
                return

    def _take(self, data: bytes) -> None:
        for event in self.client.receive_data(data):
            stream_id = getattr(event, "stream_id", None)
            answer = self.answers.get(stream_id) if stream_id else None
            if isinstance(event, h2.events.ConnectionTerminated):
                self.goaway = event.error_code
            elif answer is None:
                continue
            elif isinstance(event, h2.events.ResponseReceived):
                answer.headers = _texts(event.headers)
            elif isinstance(event, h2.events.TrailersReceived):
                answer.trailers = _texts(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                answer.data += event.data
                if self.reads:
                    self.client.acknowledge_received_data(
                        event.flow_controlled_length, event.stream_id
                    )
            elif isinstance(event, h2.events.StreamReset):
                answer.reset = event.error_code
            elif isinstance(event, h2.events.StreamEnded):
                answer.is_ended = True


def _texts(headers: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in headers}
