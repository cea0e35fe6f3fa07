"""Claims about extproc/core/scheduler/audit.py: reservations that belong to nobody are found."""

from __future__ import annotations

from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.audit import faults, rebuild
from extproc.core.slots.endpoint_slots import EndpointSlots
from tests.fakes.small_fleet import SmallFleet


def reserved() -> tuple[SmallFleet, EndpointSlots, Ticket]:
    """Two slots of which one is leased, and a request for both of them."""
    fleet = SmallFleet(2)
    fleet.pick()
    ticket = fleet.queue(weight_slots=2)
    slots = fleet.account(fleet.addresses[0])
    assert slots.reservation is ticket.reservation is not None
    assert faults(fleet.dispatcher.state, fleet.now) == []
    return fleet, slots, ticket


def test_slots_that_are_reserved_for_a_ticket_that_left_are_found() -> None:
    fleet, slots, ticket = reserved()
    state, reservation = fleet.dispatcher.state, slots.reservation
    state.queue.leave(ticket)
    slots.reservation = reservation
    assert [fault for fault in faults(state, fleet.now) if f"ticket {ticket.id}" in fault]
    rebuild(state)
    assert faults(state, fleet.now) == []
    assert slots.open_slots == 1


def test_a_ticket_whose_slots_are_not_reserved_is_found() -> None:
    fleet, slots, ticket = reserved()
    state = fleet.dispatcher.state
    slots.reservation = None
    assert [fault for fault in faults(state, fleet.now) if f"ticket {ticket.id}" in fault]
    rebuild(state)
    assert faults(state, fleet.now) == []
    assert ticket.is_waiting and list(state.queue) == [ticket]


def test_a_reservation_of_another_pool_is_found() -> None:
    fleet, slots, _ = reserved()
    assert slots.reservation is not None
    slots.reservation.pool = EndpointSlots(0.0)
    assert faults(fleet.dispatcher.state, fleet.now)
