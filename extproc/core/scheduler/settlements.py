"""Ends the wait of a request: opens a lease, or rejects it. The queue is updated in either case."""

from dataclasses import replace

from extproc.core.address import Address
from extproc.core.bounds import BoundsOfRequest
from extproc.core.client_limits import RETRY_S
from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.decision import Picked
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.health import Health
from extproc.core.queue.drain_rate import MAX_RETRY_S, MIN_RETRY_S
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import NONE_BY_RULES, Reason, Rejected
from extproc.core.request import Request, ResolvedRequest
from extproc.core.request_groups import Group
from extproc.core.slots.lease import Lease
from extproc.core.slots.model_pools import slot_pool
from extproc.core.state import State
from extproc.core.views.forecast import Forecast


class Settlements:
    """Picks and rejections. Synchronous; the slot allocator decides which."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._outbox = state.outbox
        self.forecast = Forecast(state)

    def pick(
        self,
        address: Address,
        request: Request,
        resolved: ResolvedRequest,
        arrived_at: float,
        now: float,
        *,
        is_from_queue: bool = False,
        waits_since: float | None = None,
    ) -> Picked:
        """Open a lease for a request that arrived at `arrived_at`. By `waits_since`, if that is
        given, its SLO is judged: a session that held it back is no fault of the servers."""
        state = self._state
        endpoint = state.fleet.get(address)
        assert endpoint is not None, "only members are ranked"
        endpoint_slots = state.ledger.endpoint_slots(address)
        ranking = state.rankings.at(resolved.constraints)
        has_pool = bool(resolved.constraints.pool)
        is_restricted = has_pool or state.rankings.is_restricted(ranking)
        fallbacks = state.options.fallbacks.beside(address, ranking, request.weight_slots)
        model = resolved.constraints.model
        slots, pool, is_loaded = slot_pool(endpoint, endpoint_slots, model)
        if is_from_queue or slots.reservation is not None:
            # A request that bypasses a reservation counts as served from the queue.
            endpoint_slots.served_from_queue += 1
        adapter = request.adapter
        adapter_id = None if adapter is None else endpoint.adapter_ids.get(adapter)
        is_cold = pool is not None and not is_loaded
        shares = state.ledger.shares_contexts
        demand = state.demands.of(resolved, request, now) if shares else None
        lease = state.ledger.open(address, request.weight_slots, now, pool, model, demand)
        lease.bounds = resolved.bounds
        for bound in resolved.bounds:
            bound.request_began()
        if resolved.groups:
            lease.groups = resolved.groups
            for group in resolved.groups:
                group.request_began()
        lease.is_uploading = request.is_uploading
        if request.is_partial:
            state.uploads.upload_began(lease)
        try:
            if state.outliers.picked(lease, request, now):
                self._outbox.wake_at(state.outliers.next_expiry())
            state.rankings.changed(endpoint)
            if pool is not None and is_cold:
                state.model_loads.start(pool, address, now, lease)
                state.rankings.load_changed(pool)
                self._outbox.wake_at(state.model_loads.next_expiry())
            began_at = arrived_at if waits_since is None else waits_since
            self._record_pick(endpoint, request, resolved, lease, began_at, is_cold=is_cold)
        except Exception as error:  # noqa: BLE001 - the lease is open, whatever is recorded
            self._outbox.step_failed("recording a pick", error)
        return Picked(
            lease=lease,
            fallbacks=fallbacks,
            waited_s=now - arrived_at,
            model=resolved.model,
            adapter_id=adapter_id,
            is_restricted=is_restricted,
        )

    def _record_pick(
        self,
        endpoint: Endpoint,
        request: Request,
        resolved: ResolvedRequest,
        lease: Lease,
        arrived_at: float,
        *,
        is_cold: bool,
    ) -> None:
        state, address, now = self._state, lease.address, lease.opened_at
        charged_s = state.latency.estimate(address, now).slot_s * lease.weight_slots
        run = state.in_flight.begin(lease, request, resolved.objective, arrived_at, charged_s)
        state.feedback.record_prediction(run, address)
        if lease.demand is not None and state.latency.endpoint(address).began():
            self._outbox.scrape(address)
        if endpoint.health is Health.ASLEEP or is_cold:
            run.is_cold = lease.is_cold = True
            run.is_valid_sample = False  # a model is loaded first, and nothing is in its cache
        state.usage_share.assigned(address, lease.weight_slots, now)
        use = state.use_by_criticality[resolved.objective.criticality]
        use.assigned(address, lease.weight_slots, now)

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket from the queue."""
        self._state.queue.leave(ticket)
        self._state.affinity_waits.left(ticket)

    def reject(
        self, ticket: Ticket, reason: Reason, now: float, constraints: Constraints = UNCONSTRAINED
    ) -> None:
        """Remove a ticket from the queue, and settle it with a rejection."""
        self.leave_expired(ticket)
        self._outbox.settle(ticket, self._rejection_of(ticket, reason, now, constraints))

    def leave_expired(self, ticket: Ticket) -> None:
        """Remove a ticket that is settled next, even if the removal fails."""
        ticket.is_waiting = False
        try:
            self.leave(ticket)
        except Exception as error:  # noqa: BLE001 - it is queued no more; the rest is repaired
            self._outbox.step_failed("taking a ticket out of the queue", error)

    def time_out(self, ticket: Ticket, now: float) -> None:
        """The ticket has left the queue because its deadline passed."""
        constraints = ticket.resolved.constraints
        reason = Reason.QUEUE_TIMEOUT
        try:
            reason = self.unless_empty(reason, constraints)
        except Exception as error:  # noqa: BLE001 - its wait is over, whatever the reason
            self._outbox.step_failed("explaining a timeout", error)
        self._outbox.settle(ticket, self._rejection_of(ticket, reason, now, constraints))
        self._record_rejection(ticket, now)

    def _rejection_of(
        self, ticket: Ticket, reason: Reason, now: float, constraints: Constraints
    ) -> Rejected:
        """The rejection of a queued request. One that waited for its session or its flow for too
        long, or had to make place, hears of that limit."""
        rejected = self.rejected(reason, now - ticket.entered_at, constraints)
        if ticket.held_by is not None and reason in (Reason.QUEUE_TIMEOUT, Reason.EVICTED):
            return replace(rejected, detail=ticket.held_by.limit_text)
        return rejected

    def _record_rejection(self, ticket: Ticket, now: float) -> None:
        """For the SLO of its objective, which its session or its flow cannot miss."""
        try:
            if ticket.held_by is None:
                self._state.in_flight.rejected(ticket.objective, now)
        except Exception as error:  # noqa: BLE001 - it was rejected, whatever is recorded
            self._outbox.step_failed("recording a rejection", error)

    def rejected(
        self,
        reason: Reason,
        waited_s: float,
        constraints: Constraints = UNCONSTRAINED,
        bounds: BoundsOfRequest = (),
    ) -> Rejected:
        """A rejection; retry after the time in which the queue for the constraints and those of the
        bounds drain."""
        expected_s = 0.0
        try:
            now = self._state.last_event_at
            expected_s = self.forecast.behind_all(constraints, now, bounds).expected_s or 0.0
        except Exception as error:  # noqa: BLE001 - it is rejected all the same
            self._outbox.step_failed("forecasting the time of a retry", error)
        retry_after_s = min(MAX_RETRY_S, max(MIN_RETRY_S, expected_s))
        detail = self._state.why_failed(constraints) if reason is Reason.MODEL_FAILED else ""
        if reason is Reason.NO_ENDPOINT and constraints.by_rules is not None:
            detail = NONE_BY_RULES
        if reason is Reason.BOUND_REACHED:
            full = [bound for bound in bounds if bound.is_full or bound.is_queue_full]
            detail = f"{full[0].description}, as many as its bound allows." if full else ""
        return Rejected(
            reason=reason, waited_s=waited_s, retry_after_s=retry_after_s, detail=detail
        )

    def over_limit(self, group: Group) -> Rejected:
        """The rejection of a request that its session or flow holds back, and that may not wait."""
        return Rejected(
            reason=Reason.RATE_LIMITED,
            waited_s=0.0,
            retry_after_s=RETRY_S,
            detail=group.limit_text,
        )

    def unless_empty(self, reason: Reason, constraints: Constraints) -> Reason:
        """`NO_ENDPOINT` if no endpoint is eligible, otherwise the given reason."""
        return reason if len(self._state.rankings.at(constraints)) else Reason.NO_ENDPOINT
