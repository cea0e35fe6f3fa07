"""Passes on what the core tells to those whom it concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from extproc.core.address import Address
    from extproc.core.outcome import Settlement
    from extproc.core.queue import Ticket


class Switchboard:
    """The core's listener. Its lines are connected once, while the service is put together."""

    def __init__(self) -> None:
        self.on_settled: list[Callable[[Ticket, Settlement], None]] = []
        self.on_wake_at: list[Callable[[float], None]] = []
        self.on_membership_changed: list[Callable[[], None]] = []
        self.on_unsure_of: list[Callable[[Address], None]] = []

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        for call in self.on_settled:
            call(ticket, settlement)

    def wake_at(self, when: float) -> None:
        for call in self.on_wake_at:
            call(when)

    def membership_changed(self) -> None:
        for call in self.on_membership_changed:
            call()

    def unsure_of(self, address: Address) -> None:
        for call in self.on_unsure_of:
            call(address)
