"""One direction of a body in full-duplex mode; every byte passes through.

    HOLDING --open--> FLOWING --end--> OVER

Held is what came before the decision; its bound is the reader's, who opens the relay as soon as
enough is here. Chunks come in any size and go out at 62,000 bytes at most. The end of the stream
is sent once, with the last chunk, however often it is received.
"""

from typing import Final

from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy.codec import chunk

MAX_CHUNK_BYTES: Final = 62_000
"""The limit of one message in the endpoint picker protocol."""


class DuplexBody:
    """Receives the messages of one direction; `kind` is the name of their field."""

    __slots__ = (
        "_held",
        "_is_over",
        "_kind",
        "has_end",
        "held_bytes",
        "is_open",
    )

    def __init__(self, kind: str, *, is_open: bool = False) -> None:
        self._kind = kind
        self._held: list[bytes] = []
        self.is_open = is_open
        self._is_over = False
        self.held_bytes = 0
        self.has_end = False

    def take(self, body: bytes, *, is_last: bool) -> list[pb.ProcessingResponse]:
        """Take one chunk; returns the messages to send."""
        if not self.has_end:
            self.has_end = is_last
            if body:
                self._held.append(body)
                self.held_bytes += len(body)
        return self._flow() if self.is_open else []

    def held(self) -> bytes:
        """The held chunks, joined."""
        if len(self._held) > 1:
            self._held = [b"".join(self._held)]
        return self._held[0] if self._held else b""

    def replace(self, body: bytes) -> None:
        """Replace the held chunks by `body`."""
        self._held = [body]
        self.held_bytes = len(body)

    def free(self) -> None:
        """Free what Envoy holds too: nothing in this mode."""

    def _drop(self) -> None:
        self._held.clear()
        self.held_bytes = 0

    def open(self) -> list[pb.ProcessingResponse]:
        """Pass on the held and all later chunks."""
        self.is_open = True
        return self._flow()

    def _flow(self) -> list[pb.ProcessingResponse]:
        if self._is_over:
            return []
        pieces = [
            body[start : start + MAX_CHUNK_BYTES]
            for body in self._held
            for start in range(0, len(body), MAX_CHUNK_BYTES)
        ]
        self._drop()
        self._is_over = self.has_end
        if self.has_end and not pieces:
            pieces.append(b"")
        last = len(pieces) - 1
        return [
            chunk(self._kind, piece, is_last=self.has_end and number == last)
            for number, piece in enumerate(pieces)
        ]
