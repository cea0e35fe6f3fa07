"""Whether the books are whole, and how they are made whole again.

What is true: the leases of the ledger by their state, and the tickets of the queue by
`is_waiting`. All else (sums, accounts, the order of the queue, reservations, what runs) is derived
from those, and can be derived anew. That is for bugs: the books of a sound core never need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.slots.lease import LeaseState

if TYPE_CHECKING:
    from extproc.core.scheduler.state import State


def faults(state: State, now: float) -> list[str]:
    """What does not fit, in words for the log; empty when all does. O(leases + tickets)."""
    open_ids = {lease.id for lease in state.ledger.leases() if lease.state is LeaseState.OPEN}
    return [
        *state.ledger.faults(now),
        *state.queue.faults(),
        *state.affinity_waits.faults(),
        *state.in_flight.faults(open_ids),
        *state.uploads.faults(open_ids),
    ]


def rebuild(state: State) -> None:
    """Derive everything anew. Heavy requests lose the slots that were reserved for them, and those
    that wait for their prompt's server may go anywhere: the next offer decides again."""
    state.ledger.rebuild()
    state.queue.rebuild()
    state.affinity_waits.clear()
    leases = [lease for lease in state.ledger.leases() if lease.state is LeaseState.OPEN]
    state.in_flight.rebuild(leases)
    state.uploads.rebuild({lease.id for lease in leases})
