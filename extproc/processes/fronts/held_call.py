"""One call of Envoy at a front: what was said, and what a core needs to continue it."""

from __future__ import annotations

from typing import Any, Final, Protocol

from extproc.core.held_state import HeldState, is_final
from extproc.transport.call import Call

BODY_TAGS: Final = (b"\x22", b"\x2a")
"""The first byte of an ext_proc message with a part of a body (fields 4 and 5)."""


class CallOwner(Protocol):
    """What a front does for its calls."""

    def received(self, held: HeldCall, message: bytes) -> None:
        """Envoy has sent a message."""

    def half_closed(self, held: HeldCall) -> None:
        """Envoy sends no more."""

    def gone(self, held: HeldCall) -> None:
        """It ended without being finished."""


class HeldCall:
    """The handler of a call: passes messages to the core, and replies back.

    It keeps the messages until another core could continue without them: all while the request is
    undecided or queued; after that no parts of bodies that the core has taken.
    """

    __slots__ = (
        "_owner",
        "began_at",
        "call",
        "exchange_id",
        "heard",
        "is_closed",
        "is_extended",
        "is_paused",
        "kept",
        "number",
        "path",
        "pool",
        "received",
        "state",
        "waits_long",
    )

    def __init__(
        self,
        owner: CallOwner,
        call: Call,
        number: int,
        path: str,
        exchange_id: str,
        now: float,
        pool: str,
    ) -> None:
        """`pool` is that of the port that it came to, empty if that is of none."""
        self._owner = owner
        self.call = call
        self.number = number
        self.path = path
        self.pool = pool
        self.exchange_id = exchange_id
        self.began_at = now
        self.kept: list[tuple[int, bytes]] = []
        """Messages with their numbers, which count from 0."""
        self.received = 0
        self.heard = 0
        """How many messages a core has taken."""
        self.state: HeldState | None = None
        self.is_closed = False
        """Whether its client sends no more."""
        self.is_paused = False
        self.is_extended = False
        """Whether Envoy was asked to wait for the reply that is due."""
        self.waits_long = False
        """Whether Envoy waits as long as a request may be queued, without being asked."""

    # What the transport calls

    def receive(self, message: bytes) -> None:
        self.kept.append((self.received, message))
        self.received += 1
        self._owner.received(self, message)

    def half_closed(self) -> None:
        self.is_closed = True
        self._owner.half_closed(self)

    def gone(self) -> None:
        self._owner.gone(self)

    # What the core says

    def update(self, heard: int, *, is_paused: bool, state: HeldState | None) -> None:
        """The core has taken `heard` messages, and knows `state` of the exchange."""
        if state is not None:
            self.state = state
        if heard > self.heard:
            self.is_extended = self.is_extended and heard < self.received
            self.heard = heard
        if is_final(self.state) and len(self.kept) > 1:
            self.kept = [
                entry
                for entry in self.kept
                if entry[0] >= self.heard or not entry[1].startswith(BODY_TAGS)
            ]
        if is_paused is not self.is_paused:
            self.is_paused = is_paused
            if is_paused:
                self.call.pause()
            else:
                self.call.resume()

    def as_plain(self) -> tuple[Any, ...]:
        """For the core that continues it."""
        metadata = tuple(self.call.metadata)
        return (
            *(self.number, self.path, metadata, self.exchange_id, self.began_at),
            *(self.state, self.heard, self.received, self.is_closed, self.kept, self.pool),
        )
