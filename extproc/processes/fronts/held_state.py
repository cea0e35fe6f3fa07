"""Between an exchange and what a front knows of it: `extproc/core/held_state.py`."""

from typing import Any

from extproc.core.address import Address
from extproc.core.held_state import LEASED, OVER, PASSING, QUEUED, HeldState
from extproc.core.scheduler.takeover import HeldLease, Place
from extproc.stream.exchange import Exchange
from extproc.stream.stage import REPLIED, Stage


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
    _, address, *plain, fallbacks = state
    return HeldLease._make((Address.parse(address), *plain, tuple(map(Address.parse, fallbacks))))


def _plain(held: HeldLease) -> tuple[Any, ...]:
    return (str(held.address), *held[1:-1], tuple(map(str, held.fallbacks)))
