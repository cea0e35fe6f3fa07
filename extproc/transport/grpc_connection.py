"""The gRPC calls of one HTTP/2 connection, without I/O."""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from extproc.transport.call import ServiceTable
from extproc.transport.grpc_call import GrpcCall
from extproc.transport.header_writer import NOT_GRPC, NOT_GRPC_TRAILERS, OPENING, trailers
from extproc.transport.http2.connection import Connection
from extproc.transport.http2.events import DataReceived, Event, HalfClosed, StreamOpened
from extproc.transport.http2.request_headers import RequestHeaders
from extproc.transport.http2.stream import Stream
from extproc.transport.limits import TransportLimits
from extproc.transport.status import INTERNAL, OK, UNIMPLEMENTED

GRPC: Final = b"application/grpc"
NOT_GRPC_TEXT: Final = b"This port speaks gRPC.\n"
MAX_SHOWN_PATH: Final = 100
OPENINGS_KEPT: Final = 64
TIMEOUT_UNITS_S: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
MAX_TIMEOUT_DIGITS: Final = 8

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


def timeout_s(value: bytes) -> float:
    """The value of `grpc-timeout` in seconds (gRPC over HTTP/2, "Timeout"). Raises `ValueError`."""
    digits, unit = value[:-1], value[-1:].decode("latin-1")
    if not digits.isdigit() or len(digits) > MAX_TIMEOUT_DIGITS or unit not in TIMEOUT_UNITS_S:
        raise ValueError("an invalid grpc-timeout")
    return int(digits) * TIMEOUT_UNITS_S[unit]
