"""Splits the data of a call into messages (gRPC over HTTP/2, "Length-Prefixed-Message")."""

from typing import Final

from extproc.transport.status import INTERNAL, RESOURCE_EXHAUSTED

PREFIX_BYTES: Final = 5


class MessageError(Exception):
    """A message that is not accepted; `status` is the code that its call ends with."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class MessageReader:
    """Keeps the beginning of a message until its end has arrived. Takes linear time."""

    __slots__ = ("_max_bytes", "_needed", "_partial")

    def __init__(self, max_bytes: int) -> None:
        """`max_bytes` bounds one message."""
        self._max_bytes = max_bytes
        self._partial = bytearray()
        self._needed = PREFIX_BYTES

    @property
    def held_bytes(self) -> int:
        """What is kept of a message that is not complete."""
        return len(self._partial)

    @property
    def missing_bytes(self) -> int:
        """What is missing of it, 0 if there is none."""
        return self._needed - len(self._partial) if self._partial else 0

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete. Raises `MessageError`."""
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed:
                return []
            data = bytes(self._partial)
            self._partial.clear()
        messages: list[bytes] = []
        at, end = 0, len(data)
        while end - at >= PREFIX_BYTES:
            size = (
                data[at + 1] << 24 | data[at + 2] << 16 | data[at + 3] << 8 | data[at + 4]
            ) + PREFIX_BYTES
            if data[at]:
                raise MessageError(INTERNAL, "compressed messages are not supported")
            if size - PREFIX_BYTES > self._max_bytes:
                found = f"a message of {size - PREFIX_BYTES} bytes"
                text = f"{found}; at most {self._max_bytes} are accepted"
                raise MessageError(RESOURCE_EXHAUSTED, text)
            if end - at < size:
                self._needed = size
                self._partial += data[at:] if at else data
                return messages
            messages.append(data[at + PREFIX_BYTES : at + size])
            at += size
        self._needed = PREFIX_BYTES
        if at < end:
            self._partial += data[at:]
        return messages


def is_one_message(data: bytes, max_bytes: int) -> bool:
    """Whether these bytes are one message that is accepted, and nothing else."""
    size = len(data) - PREFIX_BYTES
    return 0 <= size <= max_bytes and prefix(size) == data[:PREFIX_BYTES]


def prefix(size: int) -> bytes:
    """The bytes before a message of `size` bytes."""
    return size.to_bytes(PREFIX_BYTES, "big")
