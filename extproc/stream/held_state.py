"""What a front knows of an exchange, so that another core can continue it.

    None       undecided: its messages are enough to decide again
    queued     its place in the queue
    leased     the lease, once the destination has left this process
    passing    no slot is held; its messages are enough
    over       answered by the picker: nothing is left to continue

A later state replaces an earlier one. It travels in the same batch as the replies that it
describes, so a front never knows less than Envoy does. Values are plain tuples.
"""

from typing import Any, Final

from extproc.core.address import Address
from extproc.core.scheduler.takeover import HeldLease, Place
from extproc.stream.exchange import Exchange
from extproc.stream.stage import REPLIED, Stage

QUEUED: Final = "queued"
LEASED: Final = "leased"
PASSING: Final = "passing"
OVER: Final = "over"
FINAL: Final = frozenset({LEASED, PASSING, OVER})

HeldState = tuple[Any, ...]


def held_state(exchange: Exchange) -> HeldState | None:
    """Its state now; None while it is undecided, or as the front knows it."""
    stage, ticket = exchange.stage, exchange.ticket
    if ticket is not None:
        return (QUEUED, ticket.id, ticket.entered_at)
    if stage is Stage.LEASED:
        held = exchange.held_lease()
        return None if held is None else (LEASED, *_plain(held))
    if stage is Stage.PASSING:
        return (PASSING,)
    # A front ends the call of an exchange that is over: not before its reply is there.
    return (OVER,) if stage in REPLIED and not exchange.has_replies else None


def place_of(state: HeldState) -> Place:
    """The place in a `QUEUED` state."""
    return Place(*state[1:])


def lease_of(state: HeldState) -> HeldLease:
    """The lease in a `LEASED` state."""
    _, address, weight_slots, asked_slots, model, opened_at, waited_s, fallbacks = state
    return HeldLease(
        address=Address.parse(address),
        weight_slots=weight_slots,
        asked_slots=asked_slots,
        model=model,
        opened_at=opened_at,
        waited_s=waited_s,
        fallbacks=tuple(map(Address.parse, fallbacks)),
    )


def _plain(held: HeldLease) -> tuple[Any, ...]:
    return (str(held.address), *held[1:-1], tuple(map(str, held.fallbacks)))
