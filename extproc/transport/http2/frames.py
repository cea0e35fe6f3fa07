"""HTTP/2's frames: their numbers (RFC 9113, sections 6 and 7), and how they are written."""

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES: Final = 9
DEFAULT_WINDOW: Final = 65_535
"""Bytes of flow control before any setting or update (section 6.9.2)."""
DEFAULT_FRAME_BYTES: Final = 16_384
MAX_FRAME_BYTES: Final = (1 << 24) - 1
MAX_WINDOW: Final = (1 << 31) - 1

# Types of frames
DATA: Final = 0x0
HEADERS: Final = 0x1
PRIORITY: Final = 0x2
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PUSH_PROMISE: Final = 0x5
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

# Flags
ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY_FLAG: Final = 0x20

# Settings
HEADER_TABLE_SIZE: Final = 0x1
ENABLE_PUSH: Final = 0x2
MAX_CONCURRENT_STREAMS: Final = 0x3
INITIAL_WINDOW_SIZE: Final = 0x4
MAX_FRAME_SIZE: Final = 0x5
MAX_HEADER_LIST_SIZE: Final = 0x6

# Error codes
NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
FLOW_CONTROL_ERROR: Final = 0x3
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB


class ProtocolViolationError(Exception):
    """The peer broke a rule of the protocol, or a limit: the connection ends.

    `code` is the error code for GOAWAY, `str(error)` says what was wrong.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """One frame in wire format."""
    return frame_header(kind, flags, stream_id, len(payload)) + payload


def frame_header(kind: int, flags: int, stream_id: int, size: int) -> bytes:
    """The nine bytes before a payload of `size` bytes."""
    return (size << 48 | kind << 40 | flags << 32 | stream_id).to_bytes(HEADER_BYTES, "big")


def settings(values: dict[int, int]) -> bytes:
    """A SETTINGS frame with these values."""
    pairs = [key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in values.items()]
    return frame(SETTINGS, 0, 0, b"".join(pairs))


def window_update(stream_id: int, increment: int) -> bytes:
    """Allow `increment` more bytes on a stream, or with 0 on the connection."""
    return frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def rst_stream(stream_id: int, code: int) -> bytes:
    """End a stream at once."""
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def goaway(last_stream_id: int, code: int, reason: str) -> bytes:
    """End the connection; streams above `last_stream_id` were not processed."""
    numbers = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big")
    return frame(GOAWAY, 0, 0, numbers + reason.encode())
