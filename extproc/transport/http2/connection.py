"""The server's side of an HTTP/2 connection (RFC 9113), without I/O.

`receive` takes bytes and returns events; `output.take` returns the bytes to send. A frame that
breaks a rule ends its stream or, where the RFC wants it, the connection: `failure` says why.
"""

from typing import Final

from extproc.transport.http2.events import (
    DataReceived,
    Event,
    HalfClosed,
    StreamOpened,
    StreamReset,
)
from extproc.transport.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEADER_BYTES,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_BYTES,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    MAX_WINDOW,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PRIORITY_FLAG,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    ProtocolViolationError,
    frame,
    goaway,
    rst_stream,
    settings,
    window_update,
)
from extproc.transport.http2.header_blocks import HeaderBlocks
from extproc.transport.http2.limits import Limits, RateLimit
from extproc.transport.http2.request_headers import RequestHeaders
from extproc.transport.http2.stream import Output, Stream

CONTROL_FRAME_BYTES: Final = DEFAULT_FRAME_BYTES
"""The longest frame of other types than DATA and header blocks."""
MAX_STREAM: Final = (1 << 31) - 1
"""The largest number of a stream (section 5.1.1)."""


class Connection:
    """One connection. Not for use by several threads."""

    def __init__(self, limits: Limits, now: float) -> None:
        """`now` is a time in seconds on the clock that `receive` is given."""
        self.output = Output()
        self.streams: dict[int, Stream] = {}
        self.failure = ""
        """Why the connection has to be closed, empty while it has not."""
        self.is_greeted = False
        """Whether the peer has shown that it speaks HTTP/2."""
        self._limits = limits
        self._events: list[Event] = []
        self._now = now
        self._unparsed = bytearray()
        self._needed = len(PREFACE)
        self._has_settings = False
        self._last_stream = 0
        self._refuses_above = MAX_STREAM
        self._receive_window = limits.connection_window_bytes
        self._peer_stream_window = DEFAULT_WINDOW
        self._blocks = HeaderBlocks(limits.header_bytes, limits.table_bytes)
        self._block = bytearray()
        self._block_stream = 0
        self._block_flags = 0
        self._block_frames = 0
        self._data_stream: Stream | None = None
        self._data_left = 0
        self._data_ends = False
        self._resets = RateLimit(limits.resets, limits.resets_per_s, now)
        self._chores = RateLimit(limits.chores, limits.chores_per_s, now)
        self._ping_number = 0
        self.output.write(
            settings(
                {
                    HEADER_TABLE_SIZE: limits.table_bytes,
                    MAX_CONCURRENT_STREAMS: limits.streams,
                    INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
                    MAX_FRAME_SIZE: limits.frame_bytes,
                    MAX_HEADER_LIST_SIZE: limits.header_bytes,
                }
            )
        )
        self.output.write(window_update(0, limits.connection_window_bytes - DEFAULT_WINDOW))

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Read what arrived at `now`. After a failure all further bytes are ignored."""
        if self.failure:
            return []
        self._now = now
        self._events = []
        if self._unparsed:
            self._unparsed += data
            if len(self._unparsed) < self._needed:
                return []
            data = bytes(self._unparsed)
            self._unparsed.clear()
        try:
            at = self._parse(data)
            if at < len(data):
                self._unparsed += data[at:] if at else data
        except ProtocolViolationError as violation:
            self.fail(violation.code, str(violation))
        return self._events

    def ping(self) -> None:
        """Ask the peer for a sign of life."""
        self._ping_number += 1
        self.output.write(frame(PING, 0, 0, self._ping_number.to_bytes(8, "big")))

    def announce_end(self) -> None:
        """Ask the peer to open no more streams, and refuse those that cross this on their way."""
        self._refuses_above = self._last_stream
        self.output.write(goaway(self._last_stream, NO_ERROR, ""))

    def fail(self, code: int, reason: str) -> None:
        """End the connection."""
        self.failure = reason
        self.output.write(goaway(self._last_stream, code, reason[:200]))

    # Frames

    def _parse(self, data: bytes) -> int:
        """Handle all whole frames and what came of a DATA frame; returns where the rest begins."""
        at, end = 0, len(data)
        if not self.is_greeted:
            if data[: len(PREFACE)] != PREFACE[:end]:
                raise ProtocolViolationError(PROTOCOL_ERROR, "this is not HTTP/2")
            if end < len(PREFACE):
                return 0
            self.is_greeted = True
            at = len(PREFACE)
        while True:
            if self._data_left:
                if at == end:
                    return at
                part = data[at : at + self._data_left] if at else data[: self._data_left]
                at += len(part)
                self._take_data(part)
                continue
            if end - at < HEADER_BYTES:
                self._needed = HEADER_BYTES
                return at
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            kind, flags = data[at + 3], data[at + 4]
            stream_id = (
                (data[at + 5] & 0x7F) << 24 | data[at + 6] << 16 | data[at + 7] << 8 | data[at + 8]
            )
            self._check_frame(kind, flags, stream_id, size)
            if kind == DATA and not flags & PADDED:
                at += HEADER_BYTES
                self._begin_data(flags, stream_id, size, size)
                continue
            until = at + HEADER_BYTES + size
            if until > end:
                self._needed = HEADER_BYTES + size
                return at
            self._take_frame(kind, flags, stream_id, data[at + HEADER_BYTES : until])
            at = until

    def _check_frame(self, kind: int, flags: int, stream_id: int, size: int) -> None:
        """What a frame's header alone forbids."""
        limits = self._limits
        if size > limits.frame_bytes:
            raise ProtocolViolationError(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
        if self._block_stream and (kind != CONTINUATION or stream_id != self._block_stream):
            raise ProtocolViolationError(PROTOCOL_ERROR, "a header block was interrupted")
        if not self._has_settings:
            if kind != SETTINGS or flags & ACK:
                raise ProtocolViolationError(PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._has_settings = True
        if kind in {HEADERS, CONTINUATION}:
            if size > limits.header_bytes:
                raise ProtocolViolationError(ENHANCE_YOUR_CALM, "too large headers")
        elif kind != DATA and size > CONTROL_FRAME_BYTES:
            raise ProtocolViolationError(FRAME_SIZE_ERROR, f"a frame of {size} bytes")

    def _take_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == HEADERS:
            self._take_headers(flags, stream_id, payload)
        elif kind == WINDOW_UPDATE:
            self._take_window_update(stream_id, payload)
        elif kind == RST_STREAM:
            self._take_reset(stream_id, payload)
        elif kind == DATA:
            self._take_padded(flags, stream_id, payload)
        elif kind == SETTINGS:
            self._take_settings(flags, stream_id, payload)
        elif kind == PING:
            self._take_ping(flags, stream_id, payload)
        elif kind == CONTINUATION:
            self._take_continuation(flags, stream_id, payload)
        elif kind == GOAWAY:
            self._take_goaway(stream_id, payload)
        elif kind == PRIORITY:
            self._take_priority(stream_id, payload)
        elif kind == PUSH_PROMISE:
            raise ProtocolViolationError(PROTOCOL_ERROR, "a client may not push")
        else:
            self._chore()  # a frame of an unknown type is ignored (section 5.5)

    # Data

    def _begin_data(self, flags: int, stream_id: int, size: int, payload: int) -> None:
        """A DATA frame of `size` bytes, `payload` of them without padding."""
        if not size and not flags & END_STREAM:
            self._chore()
        self._receive_window -= size
        if self._receive_window < 0:
            raise ProtocolViolationError(FLOW_CONTROL_ERROR, "more data than the window allows")
        window = self._limits.connection_window_bytes
        if self._receive_window * 2 <= window:
            self.output.write(window_update(0, window - self._receive_window))
            self._receive_window = window
        stream = self._open_stream(stream_id, "data")
        self._data_left = payload
        self._data_ends = flags & END_STREAM != 0
        self._data_stream = None
        if stream is None:
            self._refuse(stream_id, STREAM_CLOSED)
            return
        stream.receive_window -= size
        if stream.is_half_closed:
            self._fail_stream(stream, STREAM_CLOSED)
            return
        if stream.receive_window < 0:
            self._fail_stream(stream, FLOW_CONTROL_ERROR)
            return
        if stream.content_left >= 0:
            stream.content_left -= payload
            if stream.content_left < 0 or (self._data_ends and stream.content_left):
                self._fail_stream(stream, PROTOCOL_ERROR)
                return
        if size > payload:
            stream.consumed(0)
        if payload:
            self._data_stream = stream
        elif self._data_ends:
            self._half_close(stream)

    def _take_data(self, part: bytes) -> None:
        """The next bytes of a DATA frame."""
        self._data_left -= len(part)
        stream = self._data_stream
        if stream is None or stream.is_closed:
            return
        stream.unread += len(part)
        self._events.append(DataReceived(stream, part))
        if not self._data_left:
            self._data_stream = None
            if self._data_ends:
                self._half_close(stream)

    def _take_padded(self, flags: int, stream_id: int, payload: bytes) -> None:
        content = _without_padding(payload)
        self._begin_data(flags, stream_id, len(payload), len(content))
        if content:
            self._take_data(content)

    def _half_close(self, stream: Stream) -> None:
        stream.is_half_closed = True
        self._events.append(HalfClosed(stream))

    # Headers

    def _take_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise ProtocolViolationError(PROTOCOL_ERROR, "headers on a stream of the server")
        if flags & PADDED:
            payload = _without_padding(payload)
        if flags & PRIORITY_FLAG:
            if len(payload) < 5:
                raise ProtocolViolationError(FRAME_SIZE_ERROR, "an incomplete priority")
            if _number(payload) == stream_id:
                raise ProtocolViolationError(PROTOCOL_ERROR, "a stream that depends on itself")
            payload = payload[5:]
        if flags & END_HEADERS:
            self._take_block(flags, stream_id, payload)
            return
        self._block = bytearray(payload)
        self._block_stream, self._block_flags, self._block_frames = stream_id, flags, 0

    def _take_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not self._block_stream:
            raise ProtocolViolationError(PROTOCOL_ERROR, "a continuation of nothing")
        self._block += payload
        self._block_frames += 1
        limits = self._limits
        if self._block_frames > limits.continuations or len(self._block) > limits.header_bytes:
            raise ProtocolViolationError(ENHANCE_YOUR_CALM, "too large headers")
        if flags & END_HEADERS:
            self._block_stream = 0
            block = bytes(self._block)
            self._block.clear()
            self._take_block(self._block_flags, stream_id, block)

    def _take_block(self, flags: int, stream_id: int, block: bytes) -> None:
        """A whole header block: a request, or its trailers."""
        if len(block) > self._limits.header_bytes:
            raise ProtocolViolationError(ENHANCE_YOUR_CALM, "too large headers")
        headers = self._blocks.read(block)
        ends = flags & END_STREAM != 0
        if stream_id <= self._last_stream:
            self._take_trailers(stream_id, headers, ends)
            return
        self._last_stream = stream_id
        if stream_id > self._refuses_above or len(self.streams) >= self._limits.streams:
            self._refuse(stream_id, REFUSED_STREAM)
            return
        length = headers.content_length
        if headers.fault or headers.is_trailers or (ends and length > 0):
            self._refuse(stream_id, PROTOCOL_ERROR)
            return
        stream = Stream(
            stream_id, self.output, self.streams, self._limits, self._peer_stream_window
        )
        stream.content_left = length
        self.streams[stream_id] = stream
        self._events.append(StreamOpened(stream, headers))
        if ends:
            self._half_close(stream)

    def _take_trailers(self, stream_id: int, headers: RequestHeaders, ends: bool) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            raise ProtocolViolationError(STREAM_CLOSED, "headers on a closed stream")
        if stream.is_half_closed:
            self._fail_stream(stream, STREAM_CLOSED)
        elif headers.fault or not headers.is_trailers or not ends or stream.content_left > 0:
            self._fail_stream(stream, PROTOCOL_ERROR)
        else:
            self._half_close(stream)

    # Control

    def _take_window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolViolationError(FRAME_SIZE_ERROR, "an invalid window update")
        increment = _number(payload)
        output = self.output
        if not stream_id:
            if not increment:
                raise ProtocolViolationError(PROTOCOL_ERROR, "a window update of nothing")
            output.window += increment
            if output.window > MAX_WINDOW:
                raise ProtocolViolationError(FLOW_CONTROL_ERROR, "a window is too large")
            output.resume()
            return
        stream = self._open_stream(stream_id, "a window update")
        if stream is None:
            if not increment:
                self._refuse(stream_id, PROTOCOL_ERROR)
        elif not increment:
            self._fail_stream(stream, PROTOCOL_ERROR)
        elif not stream.widen(increment):
            self._fail_stream(stream, FLOW_CONTROL_ERROR)
        else:
            stream.flush()

    def _take_reset(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolViolationError(FRAME_SIZE_ERROR, "an invalid reset")
        stream = self._open_stream(stream_id, "a reset")
        if stream is None:
            return
        if not stream.is_half_closed and not self._resets.allows(self._now):
            raise ProtocolViolationError(ENHANCE_YOUR_CALM, "too many resets")
        stream.close()
        self._events.append(StreamReset(stream))

    def _take_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ProtocolViolationError(PROTOCOL_ERROR, "settings of a stream")
        if flags & ACK:
            if payload:
                raise ProtocolViolationError(FRAME_SIZE_ERROR, "an invalid acknowledgement")
            self._blocks.settings_acknowledged()
            return
        if len(payload) % 6:
            raise ProtocolViolationError(FRAME_SIZE_ERROR, "invalid settings")
        self._chore()
        for at in range(0, len(payload), 6):
            key = payload[at] << 8 | payload[at + 1]
            self._set(key, int.from_bytes(payload[at + 2 : at + 6], "big"))
        self.output.write(frame(SETTINGS, ACK, 0, b""))
        self.output.resume()

    def _set(self, key: int, value: int) -> None:
        if key == ENABLE_PUSH:
            if value > 1:
                raise ProtocolViolationError(PROTOCOL_ERROR, "an invalid setting")
        elif key == INITIAL_WINDOW_SIZE:
            if value > MAX_WINDOW:
                raise ProtocolViolationError(FLOW_CONTROL_ERROR, "a window is too large")
            change = value - self._peer_stream_window
            self._peer_stream_window = value
            for stream in self.streams.values():
                if not stream.widen(change):
                    raise ProtocolViolationError(FLOW_CONTROL_ERROR, "a window is too large")
        elif key == MAX_FRAME_SIZE:
            if not DEFAULT_FRAME_BYTES <= value <= MAX_FRAME_BYTES:
                raise ProtocolViolationError(PROTOCOL_ERROR, "an invalid frame size")
            self.output.max_frame_bytes = value

    def _take_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ProtocolViolationError(PROTOCOL_ERROR, "a ping on a stream")
        if len(payload) != 8:
            raise ProtocolViolationError(FRAME_SIZE_ERROR, "an invalid ping")
        if not flags & ACK:
            self._chore()
            self.output.write(frame(PING, ACK, 0, payload))

    def _take_goaway(self, stream_id: int, payload: bytes) -> None:
        if stream_id:
            raise ProtocolViolationError(PROTOCOL_ERROR, "a goaway on a stream")
        if len(payload) < 8:
            raise ProtocolViolationError(FRAME_SIZE_ERROR, "an invalid goaway")

    def _take_priority(self, stream_id: int, payload: bytes) -> None:
        """Priorities are ignored, but for their format (section 5.3.2)."""
        self._chore()
        if not stream_id:
            raise ProtocolViolationError(PROTOCOL_ERROR, "a priority of the connection")
        fault = NO_ERROR
        if len(payload) != 5:
            fault = FRAME_SIZE_ERROR
        elif _number(payload) == stream_id:
            fault = PROTOCOL_ERROR
        if fault:
            stream = self.streams.get(stream_id)
            if stream is not None:
                self._fail_stream(stream, fault)
            else:
                self.output.write(rst_stream(stream_id, fault))

    # Rules for streams

    def _open_stream(self, stream_id: int, what: str) -> Stream | None:
        """The stream, or None if it is closed; raises for one that was never opened."""
        stream = self.streams.get(stream_id)
        if stream is None and (not stream_id & 1 or stream_id > self._last_stream):
            raise ProtocolViolationError(PROTOCOL_ERROR, f"{what} on a stream that is not open")
        return stream

    def _refuse(self, stream_id: int, code: int) -> None:
        """Answer a frame on a stream that is not open, or will not be."""
        self._chore()
        self.output.write(rst_stream(stream_id, code))

    def _fail_stream(self, stream: Stream, code: int) -> None:
        self._chore()
        stream.reset(code)
        self._events.append(StreamReset(stream))

    def _chore(self) -> None:
        if not self._chores.allows(self._now):
            raise ProtocolViolationError(ENHANCE_YOUR_CALM, "too many frames without content")


def _number(payload: bytes) -> int:
    """A stream's id or an increment: 31 bits, without the reserved one."""
    return (payload[0] & 0x7F) << 24 | payload[1] << 16 | payload[2] << 8 | payload[3]


def _without_padding(payload: bytes) -> bytes:
    if not payload:
        raise ProtocolViolationError(FRAME_SIZE_ERROR, "an incomplete padding")
    padding = payload[0]
    if padding >= len(payload):
        raise ProtocolViolationError(PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - padding]
