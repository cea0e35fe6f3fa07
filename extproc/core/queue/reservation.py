"""Slots that are kept for a heavy request in line, and who takes them all the same.

Only a higher-criticality request may use reserved slots, unless the reservation is exclusive: see
`discipline`.
A newcomer that passes counts as served from the line, and waits in it at the turn of age: or
critical requests that are never in line would starve whoever is heavy. It waits as well while
others of its class do, for some of them may be there for these very slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.objective import Criticality
from extproc.core.selection.ranking_cache import open_room
from extproc.core.slots.endpoint_slots import fits

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.queue.discipline import Aging
    from extproc.core.queue.request_queue import Ticket
    from extproc.core.request import Request
    from extproc.core.resolved_request import Order
    from extproc.core.scheduler.state import State
    from extproc.core.slots.endpoint_slots import Account


def can_ever_fit(ticket: Ticket, room: Account) -> bool:
    """Whether it will have its slots once those that are ours are free."""
    return fits(ticket.request.weight_slots, room.slots - room.foreign_slots, room.slots)


def is_kept_for_good(kept_for: Ticket, room: Account) -> bool:
    """Whether not even a higher class passes."""
    return kept_for.has_aged and can_ever_fit(kept_for, room)


def may_pass(criticality: Criticality, weight_slots: int, kept_for: Ticket, room: Account) -> bool:
    """Whether slots that are kept for another may go to one of that class and weight."""
    if criticality >= kept_for.criticality or is_kept_for_good(kept_for, room):
        return False
    return fits(weight_slots, room.free_slots, room.slots)


def place_to_pass(
    state: State, aging: Aging, order: Order, request: Request, now: float
) -> Address | None:
    """Where a newcomer may take slots that are kept for a lower class. O(tickets that have some
    kept), and only for critical requests: who is sheddable has none kept."""
    criticality = order.objective.criticality
    if criticality is not Criticality.CRITICAL or state.line.waiting_in(criticality):
        return None
    oldest = state.line.head()
    is_any_of_age = oldest is not None and now - oldest.entered_at >= aging.after_s
    for ticket in state.line.apart():
        endpoint = None if ticket.kept_at is None else state.fleet.get(ticket.kept_at)
        if endpoint is None or not endpoint.is_pickable or not order.demand.suits(endpoint):
            continue
        account = state.ledger.account(endpoint.address)
        if is_any_of_age and (account.served_from_line + 1) % aging.every == 0:
            continue
        room = open_room(endpoint, account, order.demand.model, state.loads)
        if room is None or room.reserved_for is not ticket:
            continue
        if may_pass(criticality, request.weight_slots, ticket, room):
            return endpoint.address
    return None
