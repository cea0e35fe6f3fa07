"""Where slots are handed out: whatever changes at an endpoint is offered to those who wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.constraints import UNCONSTRAINED, UNRESOLVED
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.health import Health
from extproc.core.queue.aging import Aging
from extproc.core.queue.discipline import QueueDiscipline
from extproc.core.queue.drain_rate import MAX_RETRY_S, MIN_RETRY_S
from extproc.core.rejection import Reason, Rejected
from extproc.core.scheduler.decision import Picked
from extproc.core.scheduler.feedback import record_prediction
from extproc.core.scheduler.forecast import Forecast
from extproc.core.slots.model_pools import close_model_pools, slot_pool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extproc.core.address import Address
    from extproc.core.constraints import Constraints
    from extproc.core.fleet.endpoint import Endpoint
    from extproc.core.fleet.resolver import ModelChange
    from extproc.core.queue.ticket import Ticket
    from extproc.core.request import Request
    from extproc.core.resolved_request import ResolvedRequest
    from extproc.core.scheduler.events import Outbox
    from extproc.core.scheduler.state import State
    from extproc.core.selection.cost import Cost
    from extproc.core.selection.endpoint_picker import AffinityTarget
    from extproc.core.slots.endpoint_slots import EndpointSlots
    from extproc.core.slots.lease import Lease


class SlotAllocator:
    """The dispatcher's hands. Synchronous; an offer is O(lanes that suit), mostly one."""

    def __init__(self, state: State, outbox: Outbox, fallbacks: int, aging: Aging) -> None:
        self._state = state
        self._outbox = outbox
        self.fallbacks = fallbacks
        self._discipline = QueueDiscipline(
            state.queue, state.fleet, state.ledger, state.slo_attainment, state.model_loads, aging
        )
        self.forecast = Forecast(state)
        self.last_event_at = 0.0

    # Giving

    def find_available(
        self, order: ResolvedRequest, request: Request, now: float
    ) -> Address | None:
        """An endpoint that can take a newcomer at once, the best one, or None."""
        if request.is_partial and not self._state.uploads.may_begin(request, now):
            return None
        choice = self._state.endpoint_picker.choose(order, request, now)
        if choice is not None:
            return choice.address
        return self._discipline.find_bypass(order, request, now)

    def cost_at(
        self, order: ResolvedRequest, request: Request, address: Address, now: float
    ) -> Cost:
        """What a choice counts for an endpoint."""
        return self._state.endpoint_picker.cost_at(order, request, address, now)

    def affinity_target(
        self, order: ResolvedRequest, request: Request, offered: Address, now: float
    ) -> AffinityTarget | None:
        """A busy endpoint that is worth waiting for instead of the one that is offered."""
        return self._state.endpoint_picker.affinity_target(order, request, offered, now)

    def enqueue(
        self, order: ResolvedRequest, request: Request, home: AffinityTarget | None, now: float
    ) -> Ticket:
        """Let a request wait, for its home alone if it has one."""
        ticket = self._state.queue.enter(request, now, order)
        self._outbox.wake_at(ticket.deadline)
        try:
            if home is not None:
                self._pin(ticket, home, now)
            elif request.weight_slots > 1:
                self.find_capacity(ticket, now)
        except Exception as error:  # noqa: BLE001 - it waits, wherever it is to go
            self._outbox.step_failed("what follows an arrival", error)
        return ticket

    def pick(
        self,
        address: Address,
        request: Request,
        order: ResolvedRequest,
        asked_at: float,
        now: float,
        *,
        is_from_line: bool = False,
    ) -> Picked:
        """Open a lease there for a request that came at `asked_at`."""
        state = self._state
        endpoint = state.fleet.get(address)
        assert endpoint is not None, "only members are ranked"
        endpoint_slots = state.ledger.endpoint_slots(address)
        ranking = state.rankings.at(order.constraints)
        others = ranking.fallbacks(1 + self.fallbacks, request.weight_slots)
        model = order.constraints.model
        slots, pool, is_loaded = slot_pool(endpoint, endpoint_slots, model)
        if is_from_line or slots.reservation is not None:
            endpoint_slots.served_from_queue += (
                1  # who passes one in line is counted as if it came there
            )
        adapter = request.adapter
        fallbacks = tuple(other for other in others if other != address)[: self.fallbacks]
        adapter_id = None if adapter is None else endpoint.adapter_ids.get(adapter)
        is_cold = pool is not None and not is_loaded
        lease = state.ledger.open(address, request.weight_slots, now, pool, model)
        lease.is_uploading = request.is_uploading
        if request.is_partial:
            state.uploads.began(lease)
        try:
            if state.outliers.picked(lease, request, now):
                self._outbox.wake_at(state.outliers.next_expiry())
            state.rankings.changed(endpoint)
            if pool is not None and is_cold:
                state.model_loads.start(pool, address, now, lease)
                state.rankings.load_changed(pool)
                self._outbox.wake_at(state.model_loads.next_expiry())
            self._note_pick(endpoint, request, order, lease, asked_at, is_cold=is_cold)
        except Exception as error:  # noqa: BLE001 - the lease is open, whatever is noted
            self._outbox.step_failed("what follows a pick", error)
        return Picked(
            lease=lease,
            fallbacks=fallbacks,
            waited_s=now - asked_at,
            model=order.model,
            adapter_id=adapter_id,
        )

    def _note_pick(
        self,
        endpoint: Endpoint,
        request: Request,
        order: ResolvedRequest,
        lease: Lease,
        asked_at: float,
        *,
        is_cold: bool,
    ) -> None:
        state, address, now = self._state, lease.address, lease.opened_at
        charged_s = state.latency.estimate(address, now).slot_s * lease.weight_slots
        run = state.in_flight.begin(lease, request, order.objective, asked_at, charged_s)
        record_prediction(state, run, address)
        if endpoint.health is Health.ASLEEP or is_cold:
            run.is_valid_sample = False  # a model is loaded first, and nothing is in its cache
        state.usage_share.gave(address, lease.weight_slots, now)

    def after_capacity_change(self, address: Address, now: float) -> None:
        """`on_capacity_change`, after a decision that stands however the offer ends."""
        try:
            self.on_capacity_change(address, now)
        except Exception as error:  # noqa: BLE001 - whoever waits is offered the next change
            self._outbox.step_failed("offering free slots", error)

    def on_capacity_change(self, address: Address, now: float) -> None:
        """Something changed at an endpoint: rank it anew and let it serve the line."""
        self.last_event_at = now
        state = self._state
        endpoint = state.fleet.get(address)
        if endpoint is None:
            return
        endpoint_slots = state.ledger.endpoint_slots(address)
        if endpoint.is_pickable and state.queue:
            self._assign_waiting(endpoint, endpoint_slots, now)
        else:
            state.rankings.changed(endpoint)
            if not endpoint.is_pickable:
                self._withdraw_from_service(endpoint, endpoint_slots, now)
        is_member = state.fleet.get(address) is endpoint  # serving others may have ended it
        if is_member and endpoint.is_removed and not endpoint_slots.leases:
            self._forget(address, now)

    def on_capacity_changes(self, addresses: Iterable[Address], now: float) -> None:
        """The same for several that changed in one moment: first rank all of them."""
        changed = [e for e in map(self._state.fleet.get, addresses) if e is not None]
        for endpoint in changed:
            self._state.rankings.changed(endpoint)
        for endpoint in changed:
            self.on_capacity_change(endpoint.address, now)

    def _assign_waiting(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> None:
        """Give the endpoint's free slots to the line, as long as somebody can use them, and
        rank it by what is left."""
        line = self._state.queue
        while endpoint.is_pickable and line:
            ticket = self._discipline.next_ticket(endpoint, endpoint_slots, now)
            if ticket is None:
                break
            if not self._state.uploads.may_begin(ticket.request, now):
                self.reject(ticket, Reason.SHED, now, ticket.resolved.constraints)
                self._note_rejection(ticket, now)
                if ticket.reserved_at not in (None, endpoint.address):
                    self.after_capacity_change(ticket.reserved_at, now)
                continue
            if ticket.pinned_to is None and ticket.reservation is None:
                home = self.affinity_target(ticket.resolved, ticket.request, endpoint.address, now)
                if home is not None:
                    self._pin(ticket, home, now)
                    continue
            picked = self.pick(
                *(endpoint.address, ticket.request, ticket.resolved),
                *(ticket.entered_at, now),
                is_from_line=True,
            )
            self._outbox.settle(ticket, picked)
            self.leave(ticket)
            self.forecast.drain_rate.slot_assigned(now)
            if ticket.reserved_at not in (None, endpoint.address):
                self.on_capacity_change(ticket.reserved_at, now)
        if not line:
            self.forecast.drain_rate.queue_emptied()
        self._state.rankings.changed(endpoint)
        while self._discipline.preempted:
            self.find_capacity(self._discipline.preempted.pop(), now)

    def find_capacity(self, ticket: Ticket, now: float) -> None:
        """It may wait for other endpoints than before: see what it finds there.

        A heavy ticket that finds too few slots has them kept, if it is its turn.
        """
        if ticket.reserved_at is not None:
            self.on_capacity_change(
                ticket.reserved_at, now
            )  # what was kept there may be free for all again
        if not ticket.is_waiting:
            return
        ranking = self._state.rankings.at(ticket.constraints)
        address = ranking.best_for(ticket.request.weight_slots)
        if address is None and ticket.reservation is None:
            address = ranking.best_for(1)
        if address is not None:
            self.on_capacity_change(address, now)

    def _pin(self, ticket: Ticket, home: AffinityTarget, now: float) -> None:
        until = now + home.max_wait_s
        self._state.affinity_waits.pin(ticket, home.address, until)
        self._outbox.wake_at(until)

    def expire_affinity_waits(self, now: float) -> None:
        """Those whose patience is over may go anywhere again."""
        for ticket in self._state.affinity_waits.expired(now):
            self.find_capacity(ticket, now)

    # Taking out of the queue

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out of the line."""
        self._state.queue.leave(ticket)
        self._state.affinity_waits.left(ticket)

    def release_reservation(self, ticket: Ticket, now: float) -> None:
        """It has left the line: others may have the slots that were kept for it."""
        if ticket.reserved_at is not None:
            self.after_capacity_change(ticket.reserved_at, now)

    def reject(
        self, ticket: Ticket, reason: Reason, now: float, constraints: Constraints = UNCONSTRAINED
    ) -> None:
        """Take a waiting ticket out of the queue, and settle it with a rejection."""
        self.leave_late(ticket)
        self._outbox.settle(ticket, self.rejected(reason, now - ticket.entered_at, constraints))

    def evict(self, victim: Ticket, now: float) -> None:
        """It gives its place in a full queue to a more critical request."""
        self.reject(victim, Reason.EVICTED, now, victim.resolved.constraints)
        self._note_rejection(victim, now)
        self.release_reservation(victim, now)

    def leave_late(self, ticket: Ticket) -> None:
        """Take a ticket out of the queue that is settled next, whatever happens here."""
        ticket.is_waiting = False
        try:
            self.leave(ticket)
        except Exception as error:  # noqa: BLE001 - it waits no more; the rest is repaired
            self._outbox.step_failed("taking a ticket out of the queue", error)

    def time_out(self, ticket: Ticket, now: float) -> None:
        """Its deadline passed, and it has left the queue."""
        constraints = ticket.resolved.constraints
        reason = Reason.QUEUE_TIMEOUT
        try:
            reason = self.unless_empty(reason, constraints)
        except Exception as error:  # noqa: BLE001 - its wait is over, whatever the reason
            self._outbox.step_failed("explaining a timeout", error)
        self._outbox.settle(ticket, self.rejected(reason, now - ticket.entered_at, constraints))
        self._note_rejection(ticket, now)

    def _note_rejection(self, ticket: Ticket, now: float) -> None:
        try:
            self._state.in_flight.rejected(ticket.objective, now)
        except Exception as error:  # noqa: BLE001 - it was rejected, whatever is noted
            self._outbox.step_failed("noting a rejection", error)

    def rejected(
        self, reason: Reason, waited_s: float, constraints: Constraints = UNCONSTRAINED
    ) -> Rejected:
        """A refusal; who comes again is told to do so when all of that demand will have gone."""
        expected_s = 0.0
        try:
            expected_s = self.forecast.behind_all(constraints, self.last_event_at).expected_s or 0.0
        except Exception as error:  # noqa: BLE001 - it is rejected all the same
            self._outbox.step_failed("forecasting when to come again", error)
        retry_after_s = min(MAX_RETRY_S, max(MIN_RETRY_S, expected_s))
        return Rejected(reason=reason, waited_s=waited_s, retry_after_s=retry_after_s)

    def unless_empty(self, reason: Reason, constraints: Constraints) -> Reason:
        """Without any endpoint that suits, that is the reason, whatever bound was met."""
        return reason if len(self._state.rankings.at(constraints)) else Reason.NO_ENDPOINT

    # Changes of the fleet

    def load_ended(self, model: str, now: float) -> None:
        """Nobody is loading it for us any more: another server may be asked to."""
        self._state.rankings.load_changed(model)
        for endpoint in list(self._state.fleet):
            if model in endpoint.models_by_name:
                self.on_capacity_change(endpoint.address, now)

    def change_models(self, change: ModelChange, now: float) -> None:
        """Models appeared or disappeared: who waits for them may use others than before. And
        who waits for what servers have to tell may know enough."""
        state = self._state
        is_changed = self._resolve_unresolved(now)
        if not change.lost and not change.gained and not is_changed:
            return
        for ticket in list(state.queue):
            constraints = state.resolver.reresolve(ticket.resolved, change)
            if constraints is not None:
                state.affinity_waits.left(ticket)
                ticket.resolved = ticket.resolved._replace(constraints=constraints)
                state.queue.change_constraints(ticket, constraints)
                is_changed = True
        if is_changed:
            for endpoint in list(state.fleet):
                self.on_capacity_change(endpoint.address, now)

    def _resolve_unresolved(self, now: float) -> bool:
        """Those whose names nobody knew: whether any of them may use other endpoints now."""
        state = self._state
        if state.queue.constraint_queue(UNRESOLVED) is None:
            return False
        untold = state.resolver.names.unreported()
        is_changed = False
        for ticket in [one for one in state.queue if one.constraints == UNRESOLVED]:
            if not ticket.is_waiting or state.resolver.names.is_ambiguous(ticket.request, untold):
                continue
            request, order = state.resolver.decided(ticket.request)
            if isinstance(order, Reason):
                self.reject(ticket, order, now)
                continue
            ticket.request = request
            ticket.resolved = order._replace(objective=ticket.objective)
            state.queue.change_constraints(ticket, order.constraints)
            is_changed = True
        return is_changed

    def _withdraw_from_service(
        self, endpoint: Endpoint, endpoint_slots: EndpointSlots, now: float
    ) -> None:
        """It may not be picked: what was expected of it is expected of others."""
        state = self._state
        if endpoint.health is Health.DOWN:
            self._lose_loads(endpoint.address, now)
        if state.outliers.is_any_out:
            for address in state.outliers.readmit_the_last(now):
                self.on_capacity_change(address, now)
        for pool in (endpoint_slots, *endpoint_slots.model_pools.values()):
            if pool.reservation is not None:
                ticket = state.queue.holder(pool.reservation)
                state.queue.cancel_reservation(ticket)
                self.find_capacity(ticket, now)
        while pinned := state.affinity_waits.first_pinned_to(
            endpoint.address
        ):  # serving one ends others
            state.affinity_waits.unpin(pinned)
            self.find_capacity(pinned, now)

    def on_model_loads(self, endpoint: Endpoint, began_at: float, now: float) -> None:
        """A look is in: what a router loads, has loaded, or loads no more."""
        loads = self._state.model_loads
        if self._state.fleet.get(endpoint.address) is not endpoint:
            return  # it was removed, and ended its last request
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
        """A router's models have no slots of their own any more: it is none."""
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
        """Slots are kept for nobody who could not use them: it serves other models now."""
        for pool in (endpoint_slots, *endpoint_slots.model_pools.values()):
            if pool.reservation is None:
                continue
            ticket = self._state.queue.holder(pool.reservation)
            if (
                is_eligible(ticket.constraints, endpoint)
                and slot_pool(endpoint, endpoint_slots, ticket.constraints.model).slots is pool
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
        state.outliers.forget(address)
        state.poison.forget(address)
        state.latency.forget(address)
        state.prefix_caches.forget(address)
        state.sessions.forget(address)
        state.usage_share.forget(address)
        self._outbox.membership_changed()
        self._lose_loads(address, now)
        self.change_models(state.resolver.forget(address), now)

    def rerank_all(self) -> None:
        """Forget what was ranked: after a failure nobody knows what is stale."""
        for endpoint in self._state.fleet:
            self._state.rankings.changed(endpoint)
