"""One stream's flow control, and the frames that it sends."""

from __future__ import annotations

from collections import deque

from extproc.transport.http2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    NO_ERROR,
    frame,
    frame_header,
    rst_stream,
    window_update,
)
from extproc.transport.http2.limits import Limits


class Output:
    """What a connection has to send: frames that are ready, and streams that wait for a window."""

    __slots__ = ("_frames", "blocked", "is_paused", "max_frame_bytes", "unblocked", "window")

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self.blocked: dict[int, Stream] = {}
        """The streams with data that the windows did not allow yet, by number."""
        self.unblocked: list[int] = []
        """The streams that have sent all of their data since this list was read."""
        self.window = DEFAULT_WINDOW
        """Bytes that the peer takes now on all streams together."""
        self.max_frame_bytes = DEFAULT_FRAME_BYTES
        self.is_paused = False
        """The network takes no more: data stays with its stream."""

    def write(self, data: bytes) -> None:
        """Send these bytes: a frame, or the next part of one."""
        self._frames.append(data)

    def take(self) -> bytes:
        """All that is ready, once."""
        if not self._frames:
            return b""
        taken = b"".join(self._frames)
        self._frames.clear()
        return taken

    def resume(self) -> None:
        """Send what the windows allow by now."""
        for stream in list(self.blocked.values()):
            if self.is_paused or self.window <= 0:
                return
            stream.flush()


class Stream:
    """One stream, from its header block until either side has ended it.

    The peer may send `receive_window` more bytes. `consumed` gives bytes back that the application
    has read; `expect` allows a message that is larger than the window.
    """

    __slots__ = (
        "_is_trailing",
        "_limits",
        "_output",
        "_pending",
        "_streams",
        "_trailers",
        "_window",
        "content_left",
        "is_closed",
        "is_half_closed",
        "receive_window",
        "stream_id",
        "unread",
    )

    def __init__(
        self,
        stream_id: int,
        output: Output,
        streams: dict[int, Stream],
        limits: Limits,
        window: int,
    ) -> None:
        """`streams` are those of the connection: a stream that ends leaves them."""
        self.stream_id = stream_id
        self._output = output
        self._streams = streams
        self._limits = limits
        self._window = window
        self._pending: deque[memoryview] | None = None
        self._trailers: bytes | None = None
        self._is_trailing = False
        self.receive_window = limits.stream_window_bytes
        self.unread = 0
        """Bytes that arrived and were not consumed."""
        self.content_left = -1
        """Bytes that its content-length still announces, -1 without one."""
        self.is_half_closed = False
        """Whether the peer has ended its side."""
        self.is_closed = False

    # What it sends

    def send_headers(self, block: bytes) -> None:
        """Send the first header block of the response."""
        if not self.is_closed:
            self._output.write(frame(HEADERS, END_HEADERS, self.stream_id, block))

    def send_data(self, data: bytes) -> None:
        """Send data, as soon as the windows allow it."""
        if self.is_closed or self._is_trailing:
            return
        output, size = self._output, len(data)
        if (
            self._pending is None
            and size <= self._window
            and size <= output.window
            and size <= output.max_frame_bytes
            and not output.is_paused
        ):
            self._window -= size
            output.window -= size
            output.write(frame_header(DATA, 0, self.stream_id, size))
            output.write(data)
            return
        if self._pending is None:
            self._pending = deque()
        self._pending.append(memoryview(data))
        self.flush()

    def send_trailers(self, block: bytes) -> None:
        """End the response with this block, after all data."""
        if self.is_closed or self._is_trailing:
            return
        self._is_trailing = True
        if self._pending is None:
            self._end(block)
        else:
            self._trailers = block

    @property
    def is_blocked(self) -> bool:
        """Whether data waits for a window."""
        return self._pending is not None

    def widen(self, increment: int) -> bool:
        """The peer takes more bytes; False if the window would be too large."""
        self._window += increment
        return self._window < 1 << 31

    def flush(self) -> None:
        """Send what the windows allow of the waiting data, then the trailers."""
        pending, output = self._pending, self._output
        if pending is None or self.is_closed:
            return
        while pending:
            part = pending[0]
            room = min(self._window, output.window, output.max_frame_bytes)
            if output.is_paused or (room <= 0 and len(part)):
                output.blocked[self.stream_id] = self
                return
            sent = part[:room]
            size = len(sent)
            self._window -= size
            output.window -= size
            output.write(frame_header(DATA, 0, self.stream_id, size))
            output.write(bytes(sent))
            if size == len(part):
                pending.popleft()
            else:
                pending[0] = part[size:]
        self._pending = None
        if output.blocked.pop(self.stream_id, None) is not None:
            output.unblocked.append(self.stream_id)
        if self._trailers is not None:
            self._end(self._trailers)

    def reset(self, code: int) -> None:
        """End both sides at once."""
        if not self.is_closed:
            self._output.write(rst_stream(self.stream_id, code))
            self.close()

    def close(self) -> None:
        """Forget it; what it did not send yet is lost."""
        self.is_closed = True
        self._pending = None
        self._streams.pop(self.stream_id, None)
        self._output.blocked.pop(self.stream_id, None)

    def _end(self, block: bytes) -> None:
        output = self._output
        output.write(frame(HEADERS, END_HEADERS | END_STREAM, self.stream_id, block))
        if not self.is_half_closed:  # the rest of the request is not needed (section 8.1)
            output.write(rst_stream(self.stream_id, NO_ERROR))
        self.close()

    # What it receives

    def consumed(self, size: int) -> None:
        """The application has read `size` bytes: the peer may send as many again."""
        self.unread -= size
        self._allow(self._limits.stream_window_bytes)

    def expect(self, size: int) -> None:
        """Allow `size` more bytes at once, the rest of a message."""
        self._allow(max(size, self._limits.stream_window_bytes))

    def _allow(self, wanted: int) -> None:
        missing = wanted - self.unread - self.receive_window
        if missing * 2 >= wanted and not self.is_half_closed and not self.is_closed:
            self.receive_window += missing
            self._output.write(window_update(self.stream_id, missing))
