"""Two connections whose bytes are passed on, in both directions and at the pace of the slower."""

from __future__ import annotations

import asyncio
from typing import Final, cast

MAX_WAITING_BYTES: Final = 64 * 1024
"""What one side may say before the other is there."""


class Pipe(asyncio.Protocol):
    """One of two connections. When either ends, so does the other."""

    def __init__(self) -> None:
        self.other: Pipe | None = None
        self.transport: asyncio.Transport | None = None
        self.waiting = bytearray()
        self.is_over = False

    def join(self, other: Pipe) -> None:
        """Pass bytes on between both from now on, with those that came before."""
        for one, two in ((self, other), (other, self)):
            one.other = two
            if two.transport is not None and one.waiting:
                two.transport.write(bytes(one.waiting))
            one.waiting.clear()
            if one.transport is not None:
                one.transport.resume_reading()
        if self.is_over or other.is_over:
            self.close()

    def close(self) -> None:
        """End both connections."""
        for pipe in (self, self.other):
            if pipe is not None and pipe.transport is not None:
                pipe.transport.close()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            if self.other.transport is not None:
                self.other.transport.write(data)
            return
        self.waiting += data
        if len(self.waiting) > MAX_WAITING_BYTES and self.transport is not None:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        self.is_over = True
        if self.other is not None:
            self.close()

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()
