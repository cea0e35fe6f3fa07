"""A lease: the right of one request to the slots that it uses on one endpoint.

    open --release(served)----> closed
    open --release(abandoned)-> draining --proved over, or the cap passed--> closed
    open --release(handed over)-> the same, but not before the request must have reached its server

The client of a draining lease has left. llama.cpp finishes its current step before it frees the
slot, so the slot counts as busy until it is seen free.
"""

from enum import Enum

from extproc.core.address import Address
from extproc.core.bounds import BoundsOfRequest
from extproc.core.exchange_record import SeenTokens
from extproc.core.prediction.generation_progress import GenerationProgress
from extproc.core.request_groups import Groups
from extproc.core.slots.token_demand import TokenDemand


class LeaseState(Enum):
    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"


class LeaseEnd(Enum):
    """How a request ended, from the view of the server's slot."""

    SERVED = "served"  # the server finished: its slot is free
    ABANDONED = "abandoned"  # the exchange broke off: the server may still work on it
    HANDED_OVER = "handed over"  # the request begins now, and its end will not be seen


class LeaseError(Exception):
    """An illegal transition of a lease: a bug of the caller."""


class Lease:
    """The right to some slots. Only the ledger changes its state."""

    __slots__ = (
        "address",
        "answered_at",
        "asked_slots",
        "bounds",
        "closed_at",
        "demand",
        "groups",
        "id",
        "is_cold",
        "is_uploading",
        "left_at",
        "model",
        "model_pool",
        "opened_at",
        "outlives_client",
        "progress",
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
        """`weight_slots` are the slots that it takes, of `asked_slots` that it could use."""
        self.id = id_
        self.address = address
        self.weight_slots = weight_slots
        self.asked_slots = weight_slots if asked_slots is None else asked_slots
        self.model = model
        """The model that its request needs, by its name in the fleet."""
        self.bounds: BoundsOfRequest = ()
        """Where it has a place; the ledger gives it back."""
        self.groups: Groups = ()
        """Where it counts; the ledger ends that, too."""
        self.demand: TokenDemand | None = None
        """What its request takes of a shared context; None if nobody asked."""
        self.opened_at = opened_at
        self.answered_at: float | None = None
        """When its server's response began, if that was seen."""
        self.is_uploading = False
        """Whether its body may have been incomplete when it was picked."""
        self.is_cold = False
        """Whether its model had to be loaded first."""
        self.progress: GenerationProgress | None = None
        """What scrapes showed of it, if its task could be identified."""
        self.left_at: float | None = None
        self.closed_at: float | None = None
        """When its slots were known to be free; None before."""
        self.outlives_client = False
        """Whether its server goes on with the request when the client leaves, to the end."""
        self.model_pool = ""
        """The model whose slots it takes, by the server's name, if slots are separate by model."""
        self.state = LeaseState.OPEN

    @property
    def seen(self) -> SeenTokens | None:
        """What scrapes showed of its request; None if they showed nothing."""
        return None if self.progress is None else self.progress.seen_tokens()

    @property
    def is_draining(self) -> bool:
        """Whether its client left and its slots are not known to be free."""
        return self.state is LeaseState.DRAINING

    def leave(self, now: float) -> None:
        """The client left; raises `LeaseError` unless the lease is open."""
        if self.state is not LeaseState.OPEN:
            raise LeaseError(f"lease {self.id} cannot drain: it is {self.state.value}")
        self.state = LeaseState.DRAINING
        self.left_at = now

    def close(self, now: float) -> None:
        """The slots are free; raises `LeaseError` if the lease is closed already."""
        if self.state is LeaseState.CLOSED:
            raise LeaseError(f"lease {self.id} was released twice")
        self.state = LeaseState.CLOSED
        self.closed_at = now

    def __repr__(self) -> str:
        return f"Lease({self.id}, {self.address}, {self.state.value}, {self.weight_slots} slots)"
