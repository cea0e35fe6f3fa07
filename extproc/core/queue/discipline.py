"""Selects the next request for a free slot.

Among the constraint queues that the endpoint can serve, the ticket with the smallest `PriorityKey`
(see `constraint_queue`) is next. Two more rules apply:
  Aging: every `every`-th assignment of an endpoint goes to the ticket that arrived first among
    those that it can serve, if that ticket has waited `after_s`. So such a ticket is served at
    the latest when an endpoint that it may use has served `every` times as many tickets as
    arrived before it, itself included.
    In the order `started_first` the turn is that of its flow, in which the order decides: agents
    have more calls than aging has turns between, so more would be started than end.
  Reservation: a multi-slot ticket that is next but finds too few free slots gets a reservation:
    the endpoint holds its free slots for the ticket. A reservation blocks no other endpoint, each
    pool has at most one, and only a request of higher criticality may use reserved slots.
    So does a ticket that finds too little room in a context that the slots share. Elsewhere there
    may be room for it earlier, so it is also next there, before what arrived after it.
  Both: such a ticket that is next by age gets an exclusive reservation, which preempts a younger
    ticket's. Not even a request of higher criticality may use its slots, because it would
    never be served otherwise, and aging selects no other ticket there. If foreign requests hold
    the slots that it needs, its reservation is not exclusive.
"""

from itertools import islice
from typing import Final, NamedTuple

from extproc.core.address import Address
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.membership import Fleet
from extproc.core.objective import Criticality
from extproc.core.queue.aging import Aging
from extproc.core.queue.constraint_queue import ConstraintQueue, PriorityKey
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request, ResolvedRequest
from extproc.core.slots.endpoint_slots import EndpointSlots, can_fit
from extproc.core.slots.ledger import Ledger
from extproc.core.slots.model_loading import ModelLoadTracker
from extproc.core.slots.model_pools import available_pool
from extproc.core.slots.token_demand import TokenDemand, TokenDemands

MOST_ASKED: Final = 8
"""The most tickets with reservations that are asked whether they could use another endpoint."""


class NextTicket(NamedTuple):
    """The selected ticket, the pool with its slots, and whether it was selected by age."""

    ticket: Ticket
    pool: EndpointSlots
    has_aged: bool


class QueueDiscipline:
    """Selects tickets and makes reservations. O(eligible constraint queues) a call, amortised.

    `preempted` are tickets that lost their reservation to an older one; the caller must find
    capacity for them again.
    """

    def __init__(
        self,
        queue: RequestQueue,
        fleet: Fleet,
        ledger: Ledger,
        slo_attainment: SloAttainment,
        loads: ModelLoadTracker,
        aging: Aging,
        demands: TokenDemands,
    ) -> None:
        self._queue = queue
        self._fleet = fleet
        self._ledger = ledger
        self._slo_attainment = slo_attainment
        self._loads = loads
        self._aging = aging
        self._demands = demands
        self.preempted: list[Ticket] = []

    def next_ticket(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> Ticket | None:
        """The ticket that may use free slots of this endpoint now, or None. It remains queued."""
        if not endpoint_slots.free_slots and not endpoint_slots.model_pools:
            return None
        while True:
            found = self._best(endpoint, endpoint_slots, now)
            if found is None:
                return self._next_by_reservation(endpoint, endpoint_slots, now)
            ticket, pool, has_aged = found
            if self._ledger.shares_contexts and not has_aged:
                earlier = self._reserved_elsewhere(endpoint, endpoint_slots, ticket, now)
                if earlier is not None:
                    return earlier
            demand = self._demand(ticket, now)
            if pool.fits(ticket.request.weight_slots, demand):
                return ticket
            reservation = pool.reservation
            if reservation is not None and reservation is not ticket.reservation:
                preempted = self._queue.holder(reservation)
                self._queue.cancel_reservation(preempted)
                self.preempted.append(preempted)
                reservation = None
            if reservation is None:
                reservation = self._queue.reserve(ticket, pool, endpoint.address, demand)
            reservation.is_exclusive = has_aged

    def _best(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> NextTicket | None:
        candidates: list[tuple[ConstraintQueue, EndpointSlots]] = []
        for constraint_queue in self._queue.queues_for(endpoint):
            pool = available_pool(
                endpoint, endpoint_slots, constraint_queue.constraints.model, self._loads
            )
            if pool is not None and pool.free_slots:
                candidates.append((constraint_queue, pool))
        if not candidates:
            return None
        aged = self._aged(candidates, endpoint_slots, now)
        if aged is not None:
            return aged
        best: tuple[PriorityKey, Ticket, EndpointSlots] | None = None
        for constraint_queue, pool in candidates:
            key, ticket = constraint_queue.next_by_priority(self._slo_attainment, now)
            if best is not None and best[0] < key:
                continue
            reservation = pool.reservation
            if reservation is None or reservation.may_be_bypassed(
                ticket.criticality, ticket.request.weight_slots, self._demand(ticket, now)
            ):
                best = (key, ticket, pool)
        return None if best is None else NextTicket(best[1], best[2], has_aged=False)

    def _aged(
        self,
        candidates: list[tuple[ConstraintQueue, EndpointSlots]],
        endpoint_slots: EndpointSlots,
        now: float,
    ) -> NextTicket | None:
        if (endpoint_slots.served_from_queue + 1) % self._aging.every:
            return None
        first: NextTicket | None = None
        first_in: ConstraintQueue | None = None
        for constraint_queue, pool in candidates:
            ticket, reservation = constraint_queue.first_arrived(), pool.reservation
            if reservation is not None:
                if reservation.is_exclusive and reservation.can_be_met():
                    continue
                ticket = min(ticket, self._queue.holder(reservation))
            fits = pool.can_ever_fit(ticket.request.weight_slots, self._demand(ticket, now))
            if fits and (first is None or ticket < first.ticket):
                first, first_in = NextTicket(ticket, pool, has_aged=True), constraint_queue
        if first is None or first_in is None or now - first.ticket.entered_at < self._aging.after_s:
            return None
        if first_in.order.is_started_first and first.ticket.queued_in is first_in:
            ticket = first_in.next_of_flow(first.ticket, now)
            fits = first.pool.can_ever_fit(ticket.request.weight_slots, self._demand(ticket, now))
            return first._replace(ticket=ticket) if fits else None
        return first

    def _next_by_reservation(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> Ticket | None:
        """A ticket with a reservation, here or elsewhere, that fits here now."""
        if not endpoint_slots.model_pools:  # the common case must not check all reservations
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
            if pool.fits(ticket.request.weight_slots, self._demand(ticket, now)):
                return ticket
        return None

    def _reserved_elsewhere(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, ticket: Ticket, now: float
    ) -> Ticket | None:
        """The first ticket that waits for tokens at another endpoint, if it may use this one, came
        before `ticket` and fits here now."""
        for earlier in islice(self._queue.with_reservations(), MOST_ASKED):
            reservation = earlier.reservation
            if (
                earlier > ticket
                or earlier.criticality > ticket.criticality
                or earlier.reserved_at == endpoint.address
                or reservation is None
                or not reservation.lacks_tokens
                or not is_eligible(earlier.constraints, endpoint)
            ):
                continue
            model = earlier.constraints.model
            pool = available_pool(endpoint, endpoint_slots, model, self._loads)
            if pool is not None and pool.reservation is None:
                fits = pool.fits(earlier.request.weight_slots, self._demand(earlier, now))
                return earlier if fits else None
        return None

    def _demand(self, ticket: Ticket, now: float) -> TokenDemand | None:
        """What it takes of a shared context, None if there is none."""
        if not self._ledger.shares_contexts:
            return None
        return self._demands.of(ticket.resolved, ticket.request, now)

    def find_bypass(
        self, resolved: ResolvedRequest, request: Request, now: float
    ) -> Address | None:
        """Where an arrival may use slots that are reserved for a request of lower criticality.

        Such an arrival counts as served from the queue, and is queued itself when aging decides:
        otherwise critical requests that are never queued would starve a multi-slot request. It is
        also queued while others of its criticality are: some may wait for these very slots.
        O(reservations), and only for critical requests: sheddable requests have no reservations.
        """
        criticality = resolved.objective.criticality
        if criticality is not Criticality.CRITICAL or self._queue.assignable_of(criticality):
            return None
        first = self._queue.first_assignable()
        has_aged_ticket = first is not None and now - first.entered_at >= self._aging.after_s
        for ticket in self._queue.with_reservations():
            reservation, address = ticket.reservation, ticket.reserved_at
            endpoint = None if address is None else self._fleet.get(address)
            if (
                endpoint is None
                or not endpoint.is_pickable
                or not is_eligible(resolved.constraints, endpoint)
            ):
                continue
            endpoint_slots = self._ledger.endpoint_slots(endpoint.address)
            if has_aged_ticket and (endpoint_slots.served_from_queue + 1) % self._aging.every == 0:
                continue
            pool = available_pool(endpoint, endpoint_slots, resolved.constraints.model, self._loads)
            if pool is None or reservation is None or pool.reservation is not reservation:
                continue
            shares = self._ledger.shares_contexts
            demand = self._demands.of(resolved, request, now) if shares else None
            if reservation.may_be_bypassed(criticality, request.weight_slots, demand):
                return endpoint.address
        return None
