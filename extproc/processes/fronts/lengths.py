"""Messages one after the other, each behind its length: four bytes, little-endian."""

import struct
from typing import Final

_LENGTH: Final = struct.Struct("<I")


class TooLongError(ValueError):
    """The other side announced a longer message than is read."""


def with_length(message: bytes) -> bytes:
    """A message as it is sent."""
    return _LENGTH.pack(len(message)) + message


class MessageReader:
    """Keeps what arrived, and gives it back message by message. `max_bytes` bounds each; None for
    what one of our own processes sent."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._kept = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        """More has arrived."""
        if self._start:
            del self._kept[: self._start]
            self._start = 0
        self._kept += data

    def take(self) -> bytes | None:
        """The next message, None while it is not complete. Raises `TooLongError`."""
        begin = self._start + _LENGTH.size
        if len(self._kept) < begin:
            return None
        (size,) = _LENGTH.unpack_from(self._kept, self._start)
        if self._max_bytes is not None and size > self._max_bytes:
            raise TooLongError(f"a message of {size} bytes")
        if len(self._kept) < begin + size:
            return None
        self._start = begin + size
        return bytes(self._kept[begin : self._start])

    def take_rest(self) -> bytes:
        """What follows the last message that was taken, message or not."""
        rest = bytes(self._kept[self._start :])
        self._kept.clear()
        self._start = 0
        return rest
