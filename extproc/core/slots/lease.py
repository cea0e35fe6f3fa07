"""A lease: the right of one request to the slots it occupies on one endpoint.

    open --release(served)----> closed
    open --release(abandoned)-> draining --shown free, or the cap passed--> closed
    open --release(handed over)-> the same, but not before the request must have reached its server

A draining lease belongs to a client that left: llama.cpp finishes its current step before
it lets go of the slot, so the slot stays taken until it is seen free.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extproc.core.address import Address


class LeaseState(Enum):
    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"


class LeaseEnd(Enum):
    """How a request ended, as far as the server's slot is concerned."""

    SERVED = "served"  # the server finished: its slot is free
    ABANDONED = "abandoned"  # the exchange broke off: the server may still be at it
    HANDED_OVER = "handed over"  # it begins now, and nobody will tell of its end


class LeaseError(Exception):
    """A transition that a lease does not have: a bug of the caller."""


class Lease:
    """One open claim. Only the ledger moves it from state to state."""

    __slots__ = (
        "address",
        "answered_at",
        "asked_slots",
        "id",
        "is_uploading",
        "left_at",
        "model",
        "model_pool",
        "opened_at",
        "state",
        "weight_slots",
    )

    def __init__(
        self,
        id_: int,
        address: Address,
        weight_slots: int,
        opened_at: float,
        *,
        asked_slots: int | None = None,
        model: str | None = None,
    ) -> None:
        """`weight_slots` are those that it takes, of `asked_slots` that it could use."""
        self.id = id_
        self.address = address
        self.weight_slots = weight_slots
        self.asked_slots = weight_slots if asked_slots is None else asked_slots
        self.model = model
        """What its request asks for, as the fleet knows it."""
        self.opened_at = opened_at
        self.answered_at: float | None = None
        """When its server's answer began, if that was seen."""
        self.is_uploading = False
        """Whether its body may not have been complete when it was picked."""
        self.left_at: float | None = None
        self.model_pool = ""
        """The model whose slots it takes, by its own name, where a server has slots by model."""
        self.state = LeaseState.OPEN

    def leave(self, now: float) -> None:
        """The client left; raises `LeaseError` unless open."""
        if self.state is not LeaseState.OPEN:
            raise LeaseError(f"lease {self.id} cannot drain: it is {self.state.value}")
        self.state = LeaseState.DRAINING
        self.left_at = now

    def close(self) -> None:
        """The slots are free; raises `LeaseError` when that was said before."""
        if self.state is LeaseState.CLOSED:
            raise LeaseError(f"lease {self.id} was released twice")
        self.state = LeaseState.CLOSED

    def __repr__(self) -> str:
        return f"Lease({self.id}, {self.address}, {self.state.value}, {self.weight_slots} slots)"
