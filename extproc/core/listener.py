"""What the core tells its surroundings, as it happens and in the same call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.outcome import Settlement
    from extproc.core.queue import Ticket


class Listener(Protocol):
    """Called from inside the dispatcher: must not call back into it, block or raise."""

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        """A waiting request got its slot or was refused."""

    def wake_at(self, when: float) -> None:
        """Call `Dispatcher.advance` at `when`, unless an earlier call is due already."""

    def membership_changed(self) -> None:
        """`Dispatcher.fleet.membership()` is another one than before."""

    def unsure_of(self, address: Address) -> None:
        """Look at this endpoint soon: something happened there that only a look explains."""
