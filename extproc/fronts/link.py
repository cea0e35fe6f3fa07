"""One end of the connection between a front and the core, on asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from extproc.fronts.frames import BatchReader, encode

if TYPE_CHECKING:
    import asyncio

    from extproc.fronts.frames import Frame

WRITE_BUFFER_BYTES: Final = 16 << 20
"""Unsent bytes at which the side that talks stops reading its own clients."""


class LinkOwner(Protocol):
    """Who talks over a link."""

    def heard(self, link: Link, batch: list[Frame]) -> None: ...

    def lost(self, link: Link) -> None: ...

    def throttled(self, link: Link, is_throttled: bool) -> None: ...


class Link:
    """An asyncio protocol. All that is said in one turn of the loop leaves in one write."""

    def __init__(self, owner: LinkOwner, loop: asyncio.AbstractEventLoop, name: str = "") -> None:
        self.name = name
        self.is_throttled = False
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reader = BatchReader()
        self._unsent: list[Frame] = []
        self._is_flush_due = False
        self._is_lost = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def say(self, frame: Frame) -> None:
        """Send a message in this turn of the loop; without effect once the link is lost."""
        self._unsent.append(frame)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Send what was said so far."""
        self._is_flush_due = False
        if self._transport is None and not self._is_lost:
            return  # it is being connected
        batch, self._unsent = self._unsent, []
        if batch and self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(batch))

    def close(self) -> None:
        """End the link. The owner hears that it is lost."""
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.flush()

    def data_received(self, data: bytes) -> None:
        for batch in self._reader.feed(data):
            self._owner.heard(self, batch)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._is_lost = True
        self._owner.lost(self)

    def pause_writing(self) -> None:
        self.is_throttled = True
        self._owner.throttled(self, True)

    def resume_writing(self) -> None:
        self.is_throttled = False
        self._owner.throttled(self, False)
