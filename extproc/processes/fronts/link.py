"""One end of the connection between a front and the core, on asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from extproc.processes.fronts.frames import Codec, Frame

WRITE_BUFFER_BYTES: Final = 16 << 20
"""Unsent bytes at which the side that talks stops reading its own clients."""

log = logging.getLogger("coxswain.fronts")


class LinkOwner(Protocol):
    """Who talks over a link."""

    def heard(self, link: Link, batch: list[Frame]) -> None: ...

    def lost(self, link: Link) -> None: ...


class Link:
    """An asyncio protocol. All that is said in one turn of the loop leaves in one write.

    With a codec of its own, the other end is another machine's: what it says may make no sense, and
    ends the link then.
    """

    def __init__(
        self,
        owner: LinkOwner,
        loop: asyncio.AbstractEventLoop,
        name: str = "",
        codec: Codec | None = None,
        may_send: Callable[[], bool] | None = None,
    ) -> None:
        """While `may_send` says no, what is said waits for a later `flush`."""
        self.name = name
        self.is_remote = codec is not None
        self.heard_at = loop.time()
        """When the other end last said something, by the loop's clock."""
        self.is_throttled = False
        """Whether the other end reads slowly."""
        self.on_writable: Callable[[Link], None] | None = None
        """Called when it is throttled no more. A core needs no such call: it says no more than
        replies to what it has heard."""
        self._owner = owner
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._codec = Codec() if codec is None else codec
        self._may_send = may_send
        self._unsent: list[Frame] = []
        self._is_flush_due = False
        self._is_lost = False

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def silent_s(self) -> float:
        """How long the other end has said nothing."""
        return self._loop.time() - self.heard_at

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
        if self._may_send is not None and not self._may_send():
            return
        batch, self._unsent = self._unsent, []
        if batch and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._codec.encode(batch))

    def say_at_once(self, frame: Frame) -> None:
        """Send a message ahead of what waits, whether or not anything may be sent."""
        if self.is_open and self._transport is not None:
            self._transport.write(self._codec.encode([frame]))

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
        try:
            batches = self._codec.feed(data)
        except DecodeError as error:
            log.error("%s sent what makes no sense: %s", self.name, error)
            self.close()
            return
        for batch in batches:
            self._owner.heard(self, batch)
        self.heard_at = self._loop.time()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._is_lost = True
        self._owner.lost(self)

    def pause_writing(self) -> None:
        self.is_throttled = True

    def resume_writing(self) -> None:
        self.is_throttled = False
        if self.on_writable is not None:
            self.on_writable(self)
