"""Assigns free slots to arrivals and to queued requests."""

from collections.abc import Iterable

from extproc.core.address import Address
from extproc.core.constraints import UNRESOLVED, Constraints
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.model_names import Unreported
from extproc.core.fleet.resolver import ModelChange
from extproc.core.queue.discipline import QueueDiscipline
from extproc.core.queue.ticket import UNKNOWN_SIZE, ExpectedSize, Ticket
from extproc.core.rejection import Reason
from extproc.core.request import HOLD_MARGIN_S, Request, ResolvedRequest
from extproc.core.scheduler.held_back import HeldBack
from extproc.core.scheduler.rule_filters import RuleFilters
from extproc.core.scheduler.settlements import Settlements
from extproc.core.scheduler.takeover import Arrival
from extproc.core.selection.endpoint_picker import AffinityTarget
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.slots.model_pools import close_model_pools, slot_pool
from extproc.core.state import State


class SlotAllocator(Settlements):
    """Assigns free slots to queued requests. Synchronous; O(eligible constraint queues) a call."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.is_held = False
        """No slot is assigned to a queued request meanwhile: see `takeover`."""
        self.rule_filters = RuleFilters(state)
        self._held_back = HeldBack(
            state, self.rule_filters, self.find_capacity, self._resolve_unresolved
        )
        self._discipline = QueueDiscipline(
            *(state.queue, state.fleet, state.ledger, state.slo_attainment),
            *(state.model_loads, state.options.aging, state.demands),
        )

    # Assignment

    def find_available(
        self, resolved: ResolvedRequest, request: Request, now: float
    ) -> Address | None:
        """The best endpoint that can serve an arrival at once, or None."""
        if request.is_partial and not self._state.uploads.may_begin(request, now):
            return None
        choice = self._state.endpoint_picker.choose(resolved, request, now)
        if choice is not None:
            return choice.address
        return self._discipline.find_bypass(resolved, request, now)

    def enqueue(
        self,
        resolved: ResolvedRequest,
        request: Request,
        target: AffinityTarget | None,
        now: float,
        arrival: Arrival | None = None,
    ) -> Ticket:
        """Queue a request, for its affinity target alone if it has one; where it would be, had it
        been queued at its `arrival`. It has its whole time in the queue from now, as the arrival is
        by another clock, but no more than Envoy has patience."""
        state = self._state
        size = self._size_of(resolved, request, now)
        if arrival is None:
            ticket = state.queue.enter(request, now, resolved, size)
        else:
            until = min(now + request.timeout_s, arrival.given_up_at - HOLD_MARGIN_S / 2)
            ticket = state.queue.place(None, request, arrival.at, resolved, size, until)
        may_fit = request.weight_slots > 1 or state.ledger.shares_contexts
        return self._queued(ticket, target, now, may_fit=may_fit)

    def place(
        self,
        resolved: ResolvedRequest,
        request: Request,
        ticket_id: int,
        entered_at: float,
        now: float,
    ) -> Ticket:
        """Queue a request where it was queued before. Finds it slots unless none are assigned."""
        size = self._size_of(resolved, request, now)
        ticket = self._state.queue.place(ticket_id, request, entered_at, resolved, size)
        return self._queued(ticket, None, now, may_fit=True)

    def _queued(
        self, ticket: Ticket, target: AffinityTarget | None, now: float, *, may_fit: bool
    ) -> Ticket:
        """Pin a ticket that was just queued to its target, or find it slots if some `may_fit`."""
        self._outbox.wake_at(ticket.deadline)
        if self._state.rules is not None:
            self._outbox.wake_at(self.rule_filters.next_ask())
        try:
            if ticket.held_by is not None:
                self.let_in_opened(now)
            elif target is not None:
                self._pin(ticket, target, now)
            elif may_fit and not self.is_held:
                self.find_capacity(ticket, now)
        except Exception as error:  # noqa: BLE001 - it is queued, wherever it may go
            self._outbox.step_failed("placing a queued request", error)
        return ticket

    def _size_of(self, resolved: ResolvedRequest, request: Request, now: float) -> ExpectedSize:
        """The size and the class by which the request is queued; unknown if nobody wants them or
        the estimate fails."""
        state = self._state
        try:
            size = state.size_of(resolved, request, now)
            if state.sizes is not None:
                state.sizes.classes.queued(size)
        except Exception as error:  # noqa: BLE001 - it is queued all the same
            self._outbox.step_failed("estimating the size of a request", error)
            return UNKNOWN_SIZE
        return size

    def after_capacity_change(self, address: Address, now: float) -> None:
        """`on_capacity_change` after a decision that stands even if the assignment fails."""
        try:
            self.on_capacity_change(address, now)
        except Exception as error:  # noqa: BLE001 - the next change assigns again
            self._outbox.step_failed("assigning free slots", error)

    def on_capacity_change(self, address: Address, now: float) -> None:
        """An endpoint changed: rank it again and assign its free slots to queued requests."""
        state = self._state
        state.last_event_at = now
        endpoint = state.fleet.get(address)
        if endpoint is None:
            return
        endpoint_slots = state.ledger.endpoint_slots(address)
        if (state.bounds.opened or state.groups.opened) and not self.is_held:
            state.rankings.changed(endpoint)
            self._held_back.assign_opened(now)
        if endpoint.is_pickable and state.queue.has_assignable and not self.is_held:
            self._assign_waiting(endpoint, endpoint_slots, now)
        else:
            state.rankings.changed(endpoint)
            if not endpoint.is_pickable:
                self._withdraw_from_service(endpoint, endpoint_slots, now)
        is_member = state.fleet.get(address) is endpoint  # assigning to others may have removed it
        if is_member and endpoint.is_removed and not endpoint_slots.leases:
            self._forget(address, now)
        if (state.bounds.opened or state.groups.opened) and not self.is_held:
            self._held_back.assign_opened(now)

    def on_capacity_changes(self, addresses: Iterable[Address], now: float) -> None:
        """The same for several endpoints that changed at once: rank all of them first."""
        changed = [e for e in map(self._state.fleet.get, addresses) if e is not None]
        for endpoint in changed:
            self._state.rankings.changed(endpoint)
        for endpoint in changed:
            self.on_capacity_change(endpoint.address, now)

    def _assign_waiting(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> None:
        """Assign the endpoint's free slots to queued requests while any can use them, and rank
        it by what is left."""
        queue = self._state.queue
        while endpoint.is_pickable and queue.has_assignable:
            ticket = self._discipline.next_ticket(endpoint, endpoint_slots, now)
            if ticket is None:
                break
            if self._state.rules is not None and not self.rule_filters.still_allow(
                ticket, endpoint
            ):
                continue
            if not self._state.uploads.may_begin(ticket.request, now):
                self.reject(ticket, Reason.SHED, now, ticket.resolved.constraints)
                self._record_rejection(ticket, now)
                if ticket.reserved_at not in (None, endpoint.address):
                    self.after_capacity_change(ticket.reserved_at, now)
                continue
            if ticket.pinned_to is None and ticket.reservation is None:
                target = self._state.endpoint_picker.affinity_target(
                    *(ticket.resolved, ticket.request, endpoint.address, now),
                    waited_s=now - ticket.entered_at,
                )
                if target is not None:
                    self._pin(ticket, target, now)
                    continue
            picked = self.pick(
                *(endpoint.address, ticket.request, ticket.resolved),
                *(ticket.entered_at, now),
                is_from_queue=True,
                waits_since=ticket.waits_since,
            )
            if ticket.expected_slot_s:
                run = self._state.in_flight.get(picked.lease)
                if run is not None:
                    run.expected_slot_s = ticket.expected_slot_s
            self._outbox.settle(ticket, picked)
            self.leave(ticket)
            self._state.drain_rate.slot_assigned(now)
            if ticket.reserved_at not in (None, endpoint.address):
                self.on_capacity_change(ticket.reserved_at, now)
        if not queue.has_assignable:
            self._state.drain_rate.queue_emptied()
        self._state.rankings.changed(endpoint)
        while self._discipline.preempted:
            self.find_capacity(self._discipline.preempted.pop(), now)
        if self.rule_filters.moved:
            self._held_back.place_moved(now)

    def find_capacity(self, ticket: Ticket, now: float) -> Address | None:
        """Find slots for a ticket that may use other endpoints than before. Returns whose slots
        were assigned, None if none has any: they may have gone to another.

        One that finds too few slots or too few tokens gets a reservation, if it is next.
        """
        if ticket.reserved_at is not None:
            # Slots that were reserved there may be free for others again.
            self.on_capacity_change(ticket.reserved_at, now)
        if not ticket.is_waiting:
            return None
        ranking = self._state.rankings.at(ticket.constraints)
        address = ranking.best_for(ticket.request.weight_slots)
        if address is not None and self._state.ledger.shares_contexts:
            found = self._state.endpoint_picker.choose(ticket.resolved, ticket.request, now)
            address = address if found is None else found.address
        if address is None and ticket.reservation is None:
            address = ranking.best_for(1)
        if address is not None:
            self.on_capacity_change(address, now)
        return address

    def _pin(self, ticket: Ticket, target: AffinityTarget, now: float) -> None:
        until = now + target.max_wait_s
        self._state.affinity_waits.pin(ticket, target.address, until)
        self._outbox.wake_at(until)

    def expire_affinity_waits(self, now: float) -> None:
        """Tickets whose affinity wait is over may go anywhere again."""
        for ticket in self._state.affinity_waits.expired(now):
            self.find_capacity(ticket, now)

    # Removal from the queue

    def after_leaving(self, ticket: Ticket, now: float) -> None:
        """After a ticket left the queue: assign the slots that were reserved for it, and let in
        what its session or its flow held back."""
        if ticket.reserved_at is not None:
            self.after_capacity_change(ticket.reserved_at, now)
        self.let_in_opened(now)

    def let_in_opened(self, now: float) -> None:
        """Sessions and flows may be below their limit: let in what they held back."""
        if self._state.groups.opened and not self.is_held:
            try:
                self._held_back.assign_opened(now)
            except Exception as error:  # noqa: BLE001 - the next change assigns again
                self._outbox.step_failed("assigning slots to requests that were held back", error)

    def evict(self, victim: Ticket, now: float) -> None:
        """Remove a ticket from a full queue in favour of a request of higher criticality."""
        self.reject(victim, Reason.EVICTED, now, victim.resolved.constraints)
        self._record_rejection(victim, now)
        self.after_leaving(victim, now)

    # Changes of the fleet

    def _members(self) -> list[Endpoint]:
        """The endpoints that a change may give requests. Each removed one is forgotten by the call
        that removed it or ended its last request, not by one inside the other: there may be
        hundreds."""
        return [endpoint for endpoint in self._state.fleet if not endpoint.is_removed]

    def load_ended(self, model: str, now: float) -> None:
        """A load of the model ended: another server may be asked to load it."""
        self._state.rankings.load_changed(model)
        for endpoint in self._members():
            if model in endpoint.models_by_name:
                self.on_capacity_change(endpoint.address, now)

    def change_models(self, change: ModelChange, now: float) -> None:
        """Models appeared or disappeared: resolve the tickets for them again, and those that were
        unresolved until servers reported their models."""
        state = self._state
        is_changed = self._resolve_unresolved(now)
        if not change.lost and not change.gained and not is_changed:
            return
        for ticket in list(state.queue):
            resolver = state.resolver.of_pool(ticket.request.pool)
            constraints = resolver.reresolve(ticket.resolved, change)
            if constraints is not None:
                state.affinity_waits.left(ticket)
                ticket.resolved = ticket.resolved._replace(constraints=constraints)
                state.queue.change_constraints(ticket, constraints)
                is_changed = True
        if is_changed:
            self.assign_everywhere(now)

    def refit_contexts(self, now: float) -> None:
        """Servers left or changed: tickets for a context that none has any more are treated as if
        they arrived now."""
        state = self._state
        is_gone: dict[Constraints, bool] = {}
        is_changed = False
        for ticket in list(state.queue):
            constraints = ticket.resolved.constraints
            if constraints not in is_gone:
                is_gone[constraints] = state.needed_contexts.is_gone(constraints)
            if not is_gone[constraints]:
                continue
            others = ticket.resolved._replace(constraints=constraints._replace(context_tokens=0))
            resolved = state.fit_context(others, ticket.request)
            if isinstance(resolved, Reason):
                self.reject(ticket, resolved, now)
                continue
            state.affinity_waits.left(ticket)
            ticket.resolved = resolved
            state.queue.change_constraints(ticket, resolved.constraints)
            is_changed = True
        self.let_in_opened(now)
        if is_changed:
            self.assign_everywhere(now)

    def assign_everywhere(self, now: float) -> None:
        """Queued requests may use other endpoints than before: assign what is free."""
        for endpoint in self._members():
            self.on_capacity_change(endpoint.address, now)

    def _resolve_unresolved(self, now: float) -> bool:
        """Resolve tickets with unknown names; returns whether any may use other endpoints now."""
        state = self._state
        if not state.queue.with_constraints(UNRESOLVED):
            return False
        unreported: dict[str, Unreported] = {}
        is_changed = False
        unresolved = [ticket for ticket in state.queue if ticket.constraints == UNRESOLVED]
        for ticket in unresolved:
            request = ticket.request
            resolver = state.resolver.of_pool(request.pool)
            if request.pool not in unreported:
                unreported[request.pool] = resolver.names.unreported()
            if not ticket.is_waiting or resolver.names.is_ambiguous(
                *(request.model, request.adapter, request.adapter_numbers),
                unreported[request.pool],
            ):
                continue
            request, resolved = resolver.decided(request)
            if isinstance(resolved, Reason):
                self.reject(ticket, resolved, now)
                continue
            ticket.request = request
            resolved = state.restrict(resolved, request)
            resolved = resolved._replace(objective=ticket.objective, groups=ticket.resolved.groups)
            state.queue.resolve(ticket, state.under_bounds(resolved, request))
            is_changed = True
        self.let_in_opened(now)
        return is_changed

    def _withdraw_from_service(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> None:
        """The endpoint is not pickable: find other endpoints for what waits for it."""
        state = self._state
        if not endpoint.is_answering:
            self._lose_loads(endpoint.address, now)
        if state.outliers.is_any_out:
            for address in state.outliers.readmit_the_last(now):
                self.on_capacity_change(address, now)
        for _, reservation in endpoint_slots.reservations():
            ticket = state.queue.holder(reservation)
            state.queue.cancel_reservation(ticket)
            self.find_capacity(ticket, now)
        # Assigning one ticket may end the affinity wait of others.
        while pinned := state.affinity_waits.first_pinned_to(endpoint.address):
            state.affinity_waits.unpin(pinned)
            self.find_capacity(pinned, now)

    def on_model_loads(self, endpoint: Endpoint, began_at: float, now: float) -> None:
        """Apply what a scrape shows: the models that a router loads, or loads no more."""
        loads = self._state.model_loads
        if self._state.fleet.get(endpoint.address) is not endpoint:
            return  # it was removed, and finished its last request
        if not len(loads) and not any(model.is_loading for model in endpoint.models):
            return
        for model in loads.over(endpoint.address, endpoint.models_by_name, began_at):
            loads.end(model, endpoint.address)
            self.load_ended(model, now)
        for reading in endpoint.models:
            if reading.is_loading and loads.may_start(reading.name):
                loads.start(reading.name, endpoint.address, now)
                self._state.rankings.load_changed(reading.name)
                self._outbox.wake_at(loads.next_expiry())

    def close_model_pools(self, endpoint_slots: EndpointSlots, now: float) -> None:
        """The server is no router any more: its models have no slots of their own."""
        reservations = [pool.reservation for pool in endpoint_slots.model_pools.values()]
        tickets = [self._state.queue.holder(one) for one in reservations if one is not None]
        for ticket in tickets:
            self._state.queue.cancel_reservation(ticket)
        close_model_pools(endpoint_slots)
        for ticket in tickets:
            self.find_capacity(ticket, now)

    def drop_reservations(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> None:
        """Cancel reservations for tickets that cannot use the endpoint: its models changed."""
        for pool, reservation in endpoint_slots.reservations():
            ticket = self._state.queue.holder(reservation)
            if (
                is_eligible(ticket.constraints, endpoint)
                and slot_pool(endpoint, endpoint_slots, ticket.constraints.model)[0] is pool
            ):
                continue
            self._state.queue.cancel_reservation(ticket)
            self.find_capacity(ticket, now)

    def _lose_loads(self, address: Address, now: float) -> None:
        loads = self._state.model_loads
        for model in loads.pending_at(address):
            loads.end(model, address)
            self.load_ended(model, now)

    def _forget(self, address: Address, now: float) -> None:
        state = self._state
        state.rankings.forget(address)
        state.ledger.remove_endpoint(address)
        state.fleet.drop(address)
        for learner in state.learners:
            learner.forget(address)
        self._outbox.membership_changed()
        self._lose_loads(address, now)
        change = state.resolver.forget(address)
        self.change_models(change, now)
        if change.lost:
            self.refit_contexts(now)

    def rerank_all(self) -> None:
        """Rank all endpoints again: after a failure any ranking may be stale."""
        for endpoint in self._state.fleet:
            self._state.rankings.changed(endpoint)
