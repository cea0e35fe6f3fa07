"""Checks the state of the core for consistency, and repairs it.

The leases of the ledger by their state, and the tickets of the queue by `is_waiting`, are
authoritative. Everything else (sums, slots, the order of the queue, reservations, requests in
flight) is derived from them and can be derived again. This is a safeguard against bugs: a correct
core never needs it.
"""

from collections.abc import Iterator

from extproc.core.bounds import BoundsOfRequest
from extproc.core.request_groups import Groups
from extproc.core.slots.lease import LeaseState
from extproc.core.state import State


def faults(state: State, now: float) -> list[str]:
    """Inconsistencies, as text for the log; empty if there are none. O(leases + tickets)."""
    open_ids = {lease.id for lease in state.ledger.leases() if lease.state is LeaseState.OPEN}
    return [
        *state.ledger.faults(now),
        *state.queue.faults(),
        *state.affinity_waits.faults(),
        *state.in_flight.faults(open_ids),
        *state.uploads.faults(open_ids),
        *state.bounds.faults(*_bounded(state)),
        *state.groups.faults(
            _counting(state), (ticket.resolved.groups for ticket in state.queue.held_back)
        ),
        *_reservation_faults(state),
    ]


def _reservation_faults(state: State) -> Iterator[str]:
    """Slots that are reserved for nobody. O(endpoints + model pools)."""
    for endpoint in state.fleet:
        for pool, reservation in state.ledger.endpoint_slots(endpoint.address).reservations():
            if reservation.pool is not pool or not state.queue.holds(reservation):
                yield f"{endpoint.address}: reserved for ticket {reservation.ticket_id}, which left"


def _bounded(state: State) -> tuple[list[BoundsOfRequest], ...]:
    """The bounds of the leases, of the queued requests, and of those with a reservation."""
    queue = state.queue
    return (
        [lease.bounds for lease in state.ledger.leases()],
        [ticket.resolved.bounds for ticket in queue],
        [ticket.resolved.bounds for ticket in queue.with_reservations()],
    )


def _counting(state: State) -> Iterator[Groups]:
    """The groups of each lease, and of each queued request that is not held back."""
    for lease in state.ledger.leases():
        yield lease.groups
    for ticket in state.queue:
        if ticket.held_by is None:
            yield ticket.resolved.groups


def rebuild(state: State) -> None:
    """Derive all derived state again. Multi-slot requests lose their reservations, and affinity
    waits end; the next change of capacity decides again."""
    state.ledger.rebuild()
    state.groups.recount(
        [lease.groups for lease in state.ledger.leases()],
        [ticket.resolved.groups for ticket in state.queue],
    )
    state.queue.rebuild()
    state.affinity_waits.clear()
    state.bounds.recount(*_bounded(state))
    leases = [lease for lease in state.ledger.leases() if lease.state is LeaseState.OPEN]
    state.in_flight.rebuild(leases)
    state.uploads.rebuild({lease.id for lease in leases})
