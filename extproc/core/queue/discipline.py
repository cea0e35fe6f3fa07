"""Whose turn it is at an endpoint that has a free slot.

Among the lanes that the endpoint can serve the best head goes first (see `lane.PriorityKey`), with
two rules beside:
  Aging: every `every`-th time that an endpoint serves the line, it takes whoever came first of
    those it can serve, if that one has waited `after_s`. So a ticket that has waited so long
    goes at the latest when an endpoint that it may use has served `every` times as many
    tickets as came before it, and its own.
  Reservation: a multi-slot ticket whose turn has come, but not enough slots, gets a reservation:
    the endpoint keeps its free slots for it. It blocks nothing elsewhere, each pool has at most
    one reservation, and only a request of higher criticality may use reserved slots.
  Both: a multi-slot ticket whose turn by age has come gets an exclusive reservation, in place of
    a younger ticket's. Not even a request of higher criticality may use its slots, or it would
    never be served, and no other turn by age comes there. Where foreign requests hold the slots
    that it needs, its reservation is not exclusive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from extproc.core.fleet.eligibility import is_eligible
from extproc.core.objective import Criticality
from extproc.core.queue.ticket import Ticket
from extproc.core.slots.endpoint_slots import EndpointSlots, can_fit
from extproc.core.slots.model_pools import available_pool

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.fleet.endpoint import Endpoint
    from extproc.core.fleet.membership import Fleet
    from extproc.core.queue.aging import Aging
    from extproc.core.queue.constraint_queue import ConstraintQueue, PriorityKey
    from extproc.core.queue.request_queue import RequestQueue
    from extproc.core.queue.slo_attainment import SloAttainment
    from extproc.core.request import Request
    from extproc.core.resolved_request import ResolvedRequest
    from extproc.core.slots.ledger import Ledger
    from extproc.core.slots.model_loading import ModelLoadTracker


class NextTicket(NamedTuple):
    """Whose turn it is, where its slots are, and whether that is for its age."""

    ticket: Ticket
    pool: EndpointSlots
    has_aged: bool


class QueueDiscipline:
    """Reads the line, and sets heavy tickets apart. O(lanes that suit) a call, amortised.

    `preempted` are those that gave way to an older one: somebody has to find them a new place.
    """

    def __init__(
        self,
        line: RequestQueue,
        fleet: Fleet,
        ledger: Ledger,
        slo_attainment: SloAttainment,
        loads: ModelLoadTracker,
        aging: Aging,
    ) -> None:
        self._queue = line
        self._fleet = fleet
        self._ledger = ledger
        self._slo_attainment = slo_attainment
        self._loads = loads
        self._aging = aging
        self.preempted: list[Ticket] = []

    def next_ticket(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> Ticket | None:
        """Who may take free slots of this endpoint now, or None. It is still in line."""
        if not endpoint_slots.free_slots and not endpoint_slots.model_pools:
            return None
        while True:
            found = self._best(endpoint, endpoint_slots, now)
            if found is None:
                return self._reserved_elsewhere(endpoint, endpoint_slots)
            ticket, pool, has_aged = found
            if can_fit(ticket.request.weight_slots, pool.free_slots, pool.slots):
                return ticket
            reservation = pool.reservation
            if reservation is not None and reservation is not ticket.reservation:
                displaced = self._queue.holder(reservation)
                self._queue.cancel_reservation(displaced)
                self.preempted.append(displaced)
                reservation = None
            if reservation is None:
                reservation = self._queue.reserve(ticket, pool, endpoint.address)
            reservation.is_exclusive = has_aged

    def _best(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> NextTicket | None:
        open_lanes: list[tuple[ConstraintQueue, EndpointSlots]] = []
        for constraint_queue in self._queue.queues_for(endpoint):
            pool = available_pool(
                endpoint, endpoint_slots, constraint_queue.constraints.model, self._loads
            )
            if pool is not None and pool.free_slots:
                open_lanes.append((constraint_queue, pool))
        if not open_lanes:
            return None
        aged = self._aged(open_lanes, endpoint_slots, now)
        if aged is not None:
            return aged
        best: tuple[PriorityKey, Ticket, EndpointSlots] | None = None
        for constraint_queue, pool in open_lanes:
            turn, ticket = constraint_queue.next_by_priority(self._slo_attainment, now)
            if best is not None and best[0] < turn:
                continue
            reservation = pool.reservation
            if reservation is None or reservation.may_be_bypassed(
                ticket.criticality, ticket.request.weight_slots
            ):
                best = (turn, ticket, pool)
        return None if best is None else NextTicket(best[1], best[2], has_aged=False)

    def _aged(
        self,
        open_lanes: list[tuple[ConstraintQueue, EndpointSlots]],
        endpoint_slots: EndpointSlots,
        now: float,
    ) -> NextTicket | None:
        if (endpoint_slots.served_from_queue + 1) % self._aging.every:
            return None
        oldest: NextTicket | None = None
        for constraint_queue, pool in open_lanes:
            ticket, reservation = constraint_queue.first_arrived(), pool.reservation
            if reservation is not None:
                if reservation.is_exclusive and reservation.can_be_met():
                    continue
                ticket = min(ticket, self._queue.holder(reservation))
            usable_slots = pool.slots - pool.foreign_slots
            is_fitting = can_fit(ticket.request.weight_slots, usable_slots, pool.slots)
            if is_fitting and (oldest is None or ticket < oldest.ticket):
                oldest = NextTicket(ticket, pool, has_aged=True)
        if oldest is None or now - oldest.ticket.entered_at < self._aging.after_s:
            return None
        return oldest

    def _reserved_elsewhere(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots
    ) -> Ticket | None:
        """A ticket that waits for reserved slots, here or elsewhere, and fits here now."""
        if not endpoint_slots.model_pools:  # the usual case must not ask all of them
            reservation = endpoint_slots.reservation
            lightest_slots = (
                self._queue.lightest_reserved_slots()
                if reservation is None
                else reservation.weight_slots
            )
            if not can_fit(lightest_slots, endpoint_slots.free_slots, endpoint_slots.slots):
                return None
        for ticket in self._queue.with_reservations():
            if not is_eligible(ticket.constraints, endpoint):
                continue
            pool = available_pool(endpoint, endpoint_slots, ticket.constraints.model, self._loads)
            if pool is None or pool.reservation not in (None, ticket.reservation):
                continue
            if can_fit(ticket.request.weight_slots, pool.free_slots, pool.slots):
                return ticket
        return None

    def find_bypass(self, order: ResolvedRequest, request: Request, now: float) -> Address | None:
        """Where an arrival may use slots that are reserved for a request of lower criticality.

        An arrival that does counts as served from the queue, and queues itself when age decides:
        otherwise critical requests that never queue would starve a multi-slot request. It queues
        as well while others of its criticality do: some may wait for these very slots.
        O(reservations), and only for critical requests: sheddable requests have no reservations.
        """
        criticality = order.objective.criticality
        if criticality is not Criticality.CRITICAL or self._queue.waiting_in(criticality):
            return None
        oldest = self._queue.first_arrived()
        is_any_of_age = oldest is not None and now - oldest.entered_at >= self._aging.after_s
        for ticket in self._queue.with_reservations():
            reservation, address = ticket.reservation, ticket.reserved_at
            endpoint = None if address is None else self._fleet.get(address)
            if (
                endpoint is None
                or not endpoint.is_pickable
                or not is_eligible(order.constraints, endpoint)
            ):
                continue
            endpoint_slots = self._ledger.endpoint_slots(endpoint.address)
            if is_any_of_age and (endpoint_slots.served_from_queue + 1) % self._aging.every == 0:
                continue
            pool = available_pool(endpoint, endpoint_slots, order.constraints.model, self._loads)
            if pool is None or reservation is None or pool.reservation is not reservation:
                continue
            if reservation.may_be_bypassed(criticality, request.weight_slots):
                return endpoint.address
        return None
