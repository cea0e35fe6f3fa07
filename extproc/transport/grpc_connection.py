"""The gRPC calls of one HTTP/2 connection, without I/O."""

from __future__ import annotations

import binascii
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from extproc.transport.call import CallHandler, Metadata, ServiceTable
from extproc.transport.header_writer import NOT_GRPC, NOT_GRPC_TRAILERS, OPENING, trailers
from extproc.transport.http2.connection import Connection
from extproc.transport.http2.events import DataReceived, Event, HalfClosed, StreamOpened
from extproc.transport.http2.request_headers import RequestHeaders
from extproc.transport.http2.stream import Stream
from extproc.transport.limits import TransportLimits
from extproc.transport.messages import (
    PREFIX_BYTES,
    MessageError,
    MessageReader,
    is_one_message,
    prefix,
)
from extproc.transport.status import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    OK,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
)

GRPC: Final = b"application/grpc"
NOT_GRPC_TEXT: Final = b"This port speaks gRPC.\n"
MAX_SHOWN_PATH: Final = 100
OPENINGS_KEPT: Final = 64
TIMEOUT_UNITS_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
MAX_TIMEOUT_DIGITS: Final = 8
TOO_MUCH: Final = "the picker holds too many bytes of incomplete or waiting messages"

log = logging.getLogger("coxswain.transport")


class Timer(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None: ...


class Opening:
    """What the headers of a call say: who serves it, or the `status` that it is rejected with.
    Computed once for headers that are seen again."""

    __slots__ = ("is_grpc", "serve", "status", "text", "timeout_s")

    def __init__(self, headers: RequestHeaders, table: ServiceTable) -> None:
        content_type = headers.get(b"content-type")
        self.is_grpc = headers.method == b"POST" and content_type.startswith(GRPC)
        path = headers.path.decode("latin-1")
        self.serve = table.get(path)
        self.status, self.text = OK, ""
        self.timeout_s: float | None = None
        if self.serve is None:
            self.status = UNIMPLEMENTED
            self.text = f"the method {path[:MAX_SHOWN_PATH]!r} is not served here"
        elif headers.get(b"grpc-encoding") not in (b"", b"identity"):
            self.status, self.text = UNIMPLEMENTED, "compressed messages are not supported"
        elif deadline := headers.get(b"grpc-timeout"):
            try:
                self.timeout_s = timeout_s(deadline)
            except ValueError as error:
                self.status, self.text = INTERNAL, str(error)


class GrpcConnection:
    """Reads what arrives, calls the handlers, and collects what they send. One for a connection."""

    def __init__(
        self,
        table: ServiceTable,
        limits: TransportLimits,
        now: float,
        flush_soon: Callable[[], None],
        call_later: Callable[[float, Callable[[], None]], Timer],
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        """`flush_soon` is called when there is something to send; `call_later` runs a function
        after some seconds, `soon` after the handlers of what arrived."""
        self.http2 = Connection(limits.http2, now)
        self.limits = limits
        self.flush_soon = flush_soon
        self.call_later = call_later
        self.soon = soon
        self.held_bytes = 0
        """What all calls keep of messages that are incomplete or wait."""
        self.stalled: dict[int, GrpcCall] = {}
        """Calls that are not read while their client does not take what was sent."""
        self._table = table
        self._calls: dict[int, GrpcCall] = {}
        self._openings: dict[RequestHeaders, Opening] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def receive(self, data: bytes, now: float) -> None:
        """Read what arrived at `now`."""
        for event in self.http2.receive(data, now):
            self._handle(event)
        if self.http2.output.unblocked:
            self.deliver_stalled()

    def deliver_stalled(self) -> None:
        """Go on with calls whose client takes data again."""
        output = self.http2.output
        unblocked, output.unblocked = output.unblocked, []
        for stream_id in unblocked:
            call = self.stalled.pop(stream_id, None)
            if call is not None:
                call.deliver()

    def lost(self) -> None:
        """The connection is gone, and with it every call."""
        for call in list(self._calls.values()):
            call.lose()

    def forget(self, stream_id: int) -> None:
        """A call is over."""
        self._calls.pop(stream_id, None)
        self.stalled.pop(stream_id, None)

    def _handle(self, event: Event) -> None:
        stream = event.stream
        if isinstance(event, StreamOpened):
            if not stream.is_closed:  # who left at once costs no decision
                self._open(stream, event.headers)
            return
        call = self._calls.get(stream.stream_id)
        if isinstance(event, DataReceived):
            if call is None:
                stream.consumed(len(event.data))
            else:
                call.take(event.data)
        elif call is not None:
            if isinstance(event, HalfClosed):
                call.half_close()
            else:
                call.was_reset = True
                call.lose()

    def _open(self, stream: Stream, headers: RequestHeaders) -> None:
        opening = self._opening(headers)
        if not opening.is_grpc:
            stream.send_headers(NOT_GRPC)
            stream.send_data(NOT_GRPC_TEXT)
            stream.send_trailers(NOT_GRPC_TRAILERS)
            return
        serve = opening.serve
        if opening.status or serve is None:
            log.warning("a call was rejected: %s", opening.text)
            stream.send_trailers(OPENING + trailers(opening.status, opening.text))
            return
        call = self._calls[stream.stream_id] = GrpcCall(self, stream, headers)
        try:
            call.begin(serve(call))
        except Exception:
            log.exception("a call of %s failed", headers.path.decode("latin-1"))
            call.finish(INTERNAL, "internal error")
            return
        if opening.timeout_s is not None and not call.is_over:
            call.expire_after(opening.timeout_s)

    def _opening(self, headers: RequestHeaders) -> Opening:
        found = self._openings.get(headers)
        if found is None:
            if len(self._openings) >= OPENINGS_KEPT:
                self._openings.clear()
            found = self._openings[headers] = Opening(headers, self._table)
        return found


class GrpcCall:
    """One call. See `Call`."""

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_calls",
        "_deadline",
        "_handler",
        "_has_half_close",
        "_headers",
        "_held_bytes",
        "_is_opened",
        "_is_paused",
        "_reader",
        "_stream",
        "is_over",
        "was_reset",
    )

    def __init__(self, calls: GrpcConnection, stream: Stream, headers: RequestHeaders) -> None:
        self._calls = calls
        self._stream = stream
        self._headers = headers
        self._handler: CallHandler | None = None
        self._reader: MessageReader | None = None
        self._backlog: deque[bytes] | None = None
        self._backlog_bytes = 0
        self._deadline: Timer | None = None
        self._held_bytes = 0
        self._has_half_close = False
        self._is_opened = False
        self._is_paused = False
        self.is_over = False
        self.was_reset = False

    # What the service calls

    @property
    def metadata(self) -> Metadata:
        headers = self._headers
        if headers.metadata is None:
            headers.metadata = [
                _metadatum(name, value)
                for name, value in headers.fields
                if not name.startswith(b":")
            ]
        return headers.metadata

    def send(self, message: bytes) -> None:
        if self.is_over:
            return
        stream = self._stream
        if not self._is_opened:
            self._is_opened = True
            stream.send_headers(OPENING)
        stream.send_data(prefix(len(message)) + message)
        self._calls.flush_soon()

    def finish(self, status: int, text: str = "") -> None:
        if self.is_over:
            return
        self._leave()
        self._send_status(status, text)

    def soon(self, function: Callable[[], None]) -> None:
        self._calls.soon(function)

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self.deliver()

    # What the connection calls

    def begin(self, handler: CallHandler) -> None:
        """From now on `handler` serves it."""
        self._handler = handler

    def expire_after(self, delay_s: float) -> None:
        """Its client waits no longer than that."""
        self._deadline = self._calls.call_later(delay_s, self._expire)

    def take(self, data: bytes) -> None:
        """The next bytes of its messages."""
        stream, reader = self._stream, self._reader
        if self.is_over:
            stream.consumed(len(data))
            return
        if reader is None:
            if self._is_ready() and is_one_message(data, self._calls.limits.message_bytes):
                stream.consumed(len(data))
                self._receive(data[PREFIX_BYTES:])
                return
            reader = self._reader = MessageReader(self._calls.limits.message_bytes)
        try:
            messages = reader.feed(data)
        except MessageError as error:
            self._refuse(error.status, str(error))
            return
        waiting_bytes = sum(map(len, messages)) + PREFIX_BYTES * len(messages)
        if messages:
            self._backlog = self._backlog or deque()
            self._backlog.extend(messages)
            self._backlog_bytes += waiting_bytes
        stream.consumed(len(data) - waiting_bytes)
        self._account(reader.held_bytes + self._backlog_bytes)
        self.deliver()
        if not self.is_over and reader.missing_bytes:
            stream.expect(reader.missing_bytes)

    def half_close(self) -> None:
        """Its client sends no more."""
        self._has_half_close = True
        self.deliver()

    def deliver(self) -> None:
        """Hand over what was kept back, as far as the handler and the client allow it."""
        while self._backlog and self._is_ready():
            message = self._backlog.popleft()
            size = len(message) + PREFIX_BYTES
            self._backlog_bytes -= size
            self._account(self._held_bytes - size)
            self._stream.consumed(size)
            self._receive(message)
        if self.is_over:
            return
        if self._has_half_close and not self._backlog and self._is_ready():
            self._has_half_close = False
            handler = self._handler
            assert handler is not None
            try:
                handler.half_closed()
            except Exception as error:  # noqa: BLE001 - it ends this call alone
                self._fail(error)
        elif self._stream.is_blocked:
            self._calls.stalled[self._stream.stream_id] = self

    def lose(self) -> None:
        """It ended without being finished."""
        if self.is_over:
            return
        handler = self._handler
        self._leave()
        if handler is None:
            return
        try:
            handler.gone()
        except Exception:
            log.exception("ending a call of %s failed", self._path())

    # Itself

    def _is_ready(self) -> bool:
        return not (self._is_paused or self.is_over or self._stream.is_blocked)

    def _receive(self, message: bytes) -> None:
        handler = self._handler
        assert handler is not None
        try:
            handler.receive(message)
        except Exception as error:  # noqa: BLE001 - it ends this call alone
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.error("a call of %s failed", self._path(), exc_info=error)
        self._break(INTERNAL, "internal error")

    def _expire(self) -> None:
        self._break(DEADLINE_EXCEEDED, "the deadline has passed")

    def _refuse(self, status: int, text: str) -> None:
        log.warning("a call of %s: %s", self._path(), text)
        self._break(status, text)

    def _break(self, status: int, text: str) -> None:
        """End it for its client and for its handler."""
        if self.is_over:
            return
        self._send_status(status, text)
        self.lose()

    def _send_status(self, status: int, text: str) -> None:
        block = trailers(status, text)
        self._stream.send_trailers(block if self._is_opened else OPENING + block)
        self._calls.flush_soon()

    def _leave(self) -> None:
        self.is_over = True
        if self._deadline is not None:
            self._deadline.cancel()
        # What refers to it is freed now, and not when the garbage collector finds the circle.
        self._handler = self._deadline = None
        self._backlog = self._reader = None
        self._account(0)
        self._calls.forget(self._stream.stream_id)

    def _account(self, held_bytes: int) -> None:
        """It keeps `held_bytes` now."""
        self._calls.held_bytes += held_bytes - self._held_bytes
        self._held_bytes = held_bytes
        if self._calls.held_bytes > self._calls.limits.held_bytes and held_bytes:
            self._refuse(RESOURCE_EXHAUSTED, TOO_MUCH)

    def _path(self) -> str:
        return self._headers.path.decode("latin-1")


def timeout_s(value: bytes) -> float:
    """The value of `grpc-timeout` in seconds (gRPC over HTTP/2, "Timeout"). Raises `ValueError`."""
    digits, unit = value[:-1], value[-1:].decode("latin-1")
    if not digits.isdigit() or len(digits) > MAX_TIMEOUT_DIGITS or unit not in TIMEOUT_UNITS_S:
        raise ValueError("an invalid grpc-timeout")
    return int(digits) * TIMEOUT_UNITS_S[unit]


def _metadatum(name: bytes, value: bytes) -> tuple[str, str | bytes]:
    """A header as gRPC's metadata: names that end with `-bin` have binary values in base64."""
    key = name.decode("latin-1")
    if not key.endswith("-bin"):
        return key, value.decode("latin-1")
    try:
        return key, binascii.a2b_base64(value + b"=" * (-len(value) % 4))
    except binascii.Error:
        return key, b""
