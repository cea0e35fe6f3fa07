"""What continues calls that another core began."""

from typing import Protocol

from extproc.core.held_state import HeldState
from extproc.transport.call import Call, CallHandler


class Continuer(Protocol):
    """Continues the calls of `path`."""

    @property
    def path(self) -> str: ...

    def state_of(self, handler: CallHandler) -> HeldState | None:
        """What the front must know; None if it is what it was sent before."""

    def begin(self, call: Call, exchange_id: str, began_at: float) -> CallHandler:
        """A call, whose messages follow."""

    def resume(self, handler: CallHandler, message: bytes, state: HeldState) -> None:
        """It holds slots; `message` is its first."""

    def place(self, handler: CallHandler, state: HeldState) -> None:
        """It is queued; its messages follow."""

    def claim(self, handler: CallHandler, message: bytes) -> None:
        """A new call, before its first message: its request may have had a place at a front that
        was lost, or may have come to it."""

    def leave(self, handler: CallHandler) -> None:
        """Its front is lost."""

    def front_silent(self, front: str) -> None:
        """A front stands still: requests may be there that nobody has seen."""

    def front_heard(self, front: str) -> None:
        """It goes on."""

    def front_lost(self, front: str) -> None:
        """A front is lost, and all its calls have left."""

    def leader_lost(self) -> None:
        """The leader before this one was on another machine, whose fronts are lost too: their
        requests come to other fronts."""

    def hold(self) -> None:
        """Assign no slots until `assign`."""

    def assign(self) -> None:
        """Everything is placed."""
