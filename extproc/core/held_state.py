"""What a front knows of an exchange, so that another core can continue it.

    None       undecided: its messages are enough to decide again
    queued     its place in the queue: ticket, when it entered
    leased     the lease, once the destination has left the core
    passing    no slot is held; its messages are enough
    over       answered by the picker: nothing is left to continue

A later state replaces an earlier one. It travels in the same batch as the replies that it
describes, so a front never knows less than Envoy does. Values are plain tuples.
"""

from typing import Any, Final, TypeAlias

QUEUED: Final = "queued"
LEASED: Final = "leased"
PASSING: Final = "passing"
OVER: Final = "over"
FINAL: Final = frozenset({LEASED, PASSING, OVER})

HeldState: TypeAlias = tuple[Any, ...]


def is_leased(state: HeldState | None) -> bool:
    """Whether the exchange holds slots."""
    return state is not None and state[0] == LEASED


def ticket_of(state: HeldState | None) -> int | None:
    """The id of its ticket, if it is queued."""
    return state[1] if state is not None and state[0] == QUEUED else None


def is_final(state: HeldState | None) -> bool:
    """Whether no other state follows: it is decided."""
    return state is not None and state[0] in FINAL


def is_over(state: HeldState | None) -> bool:
    """Whether nothing follows at all."""
    return state is not None and state[0] == OVER
