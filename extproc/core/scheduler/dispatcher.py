"""The entry to the core: requests, releases and observations in, decisions and events out.

    submit --> Picked    a slot was free and no queued request could use it
           --> Queued    no slot is free; a `Settled` event reports the end of the wait
           --> Rejected  the queue is full, or the request may not wait

Every call that may free a slot (a release, an observation, a new endpoint, an acknowledgement, the
expiry of a draining lease) assigns it in the same call to the next queued request for that endpoint
(see `discipline`). So while a request is queued, no eligible endpoint with enough slots for it is
idle, and a new request that finds a free slot overtakes no request that could have used it.

What the core asks of the code around it is left as events (see `events`); the shell sets
`on_events` and takes them with `take_events` after the call. No exception costs a slot: a call
first changes the state; errors in later steps (learning, assigning freed slots) are contained; and
if the call itself raises, all derived state is derived again from the leases and tickets.
"""

from random import Random
from typing import Final

from extproc.core.address import Address
from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.decision import Decision, Picked, Preview, Queued
from extproc.core.options import DispatcherOptions
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason
from extproc.core.request import Request, ResolvedRequest, in_time
from extproc.core.request_groups import full_group
from extproc.core.scheduler.fleet_updates import FleetUpdates
from extproc.core.scheduler.takeover import Arrival, HeldLease, Place
from extproc.core.scheduler.token_claims import learn_length, overflow_read, overflowed
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.model_pools import slot_pool
from extproc.core.views.view import View

__all__ = ["Dispatcher", "DispatcherOptions"]

SPILLS: Final = frozenset({Reason.QUEUE_FULL, Reason.SHED, Reason.QUEUE_TIMEOUT})
"""Why requests are rejected that another tier may take: all slots are in use, and they may not
wait."""


class Dispatcher(FleetUpdates):
    """Synchronous and pure: every call is atomic, none blocks, `now` is monotonic seconds.

    Code outside the core reads `fleet`, `queue` and the `view`, and calls methods; a test holds it
    to that.
    """

    def __init__(self, random: Random, options: DispatcherOptions | None = None) -> None:
        super().__init__(random, options)
        self.view = View(self.state, self._allocator.forecast, self._scale, self._preview)

    # Requests

    def submit(
        self,
        request: Request,
        now: float,
        *,
        may_queue: bool = True,
        arrival: Arrival | None = None,
    ) -> Decision:
        """Decide on a new request. A `Queued` one ends in a `Settled` event or by `withdraw`.

        Without `may_queue` it is rejected as rate-limited where it would be queued. One that is
        heard of late is queued as if it had been submitted at its `arrival`, by Envoy's clock,
        which is wrong if Envoy would have given it up since.
        """
        if arrival is not None and now > arrival.given_up_at:
            arrival = None
        with self._call:
            if self._is_closed:
                return self._allocator.rejected(Reason.SHUTTING_DOWN, 0.0)
            if self.state.poison.is_poison(request.fingerprint, now):
                return self._allocator.rejected(Reason.POISON_REQUEST, 0.0)
            resolved = self.state.resolve(request)
            if isinstance(resolved, Reason):
                return self._allocator.rejected(resolved, 0.0)
            if self.state.failed_models and self.state.why_failed(resolved.constraints):
                return self._allocator.rejected(Reason.MODEL_FAILED, 0.0, resolved.constraints)
            self.state.traffic_counter.request_arrived(resolved, now)
            if request.prompt_blocks:
                request = self.of_pool(request).apply(request, resolved)
            if resolved.bounds:
                request = in_time(request, resolved)
            address, target = self._admission.goal(resolved, request, now)
            if address is not None and self._must_wait_for_others(request, resolved):
                ticket = self._allocator.enqueue(resolved, request, None, now, arrival)
                self._spilling.queued(ticket, now)
                return Queued(ticket=ticket)
            if address is None:
                reason, is_freed = self._why_rejected(request, resolved, now, may_queue=may_queue)
                if reason in SPILLS:
                    spilled = self._spilling.take(resolved, request, now)
                    if spilled is not None:
                        return spilled
                if reason is not None:
                    if reason is not Reason.RATE_LIMITED:
                        self.state.in_flight.rejected(resolved.objective, now)
                    reason = self._allocator.unless_empty(reason, resolved.constraints)
                    group = full_group(resolved.groups) if may_queue else None
                    if reason is Reason.RATE_LIMITED and group is not None:
                        return self._allocator.over_limit(group)
                    return self._allocator.rejected(
                        reason, 0.0, resolved.constraints, resolved.bounds
                    )
                if is_freed:
                    address, _ = self._admission.goal(resolved, request, now)
            if address is not None and (target is None or not may_queue):
                entered_at = now if arrival is None else arrival.at
                return self._allocator.pick(address, request, resolved, entered_at, now)
            ticket = self._allocator.enqueue(resolved, request, target, now, arrival)
            self._spilling.queued(ticket, now)
            return self._decision_on(ticket)

    def _preview(
        self, resolved: ResolvedRequest, request: Request, now: float, may_queue: bool
    ) -> Preview:
        """What `submit` would decide on a request that was resolved. Changes nothing."""
        if self._is_closed:
            return Preview(None, None, Reason.SHUTTING_DOWN)
        return self._admission.preview(resolved, request, now, may_queue=may_queue)

    def lacks_bytes(self, request: Request) -> bool:
        """Whether queued bodies leave too few bytes for this request to be queued."""
        return self.options.queue.lacks_bytes(self.queue, request) > 0

    def _decision_on(self, ticket: Ticket) -> Decision:
        """The decision on a request that was just queued."""
        if ticket.is_waiting:
            return Queued(ticket=ticket)
        # Its arrival freed slots that were reserved for another, or it found some.
        settlement = self._outbox.settlement_of(ticket)
        assert settlement is not None
        return settlement

    def _why_rejected(
        self, request: Request, resolved: ResolvedRequest, now: float, *, may_queue: bool
    ) -> tuple[Reason | None, bool]:
        """Why it may not be queued, or None; evicts another request if the queue is full. Then
        slots that were reserved for that one may be free."""
        reason = self._admission.why_not_wait(request, resolved, now)
        if not may_queue and (reason is None or reason is Reason.QUEUE_FULL):
            return Reason.RATE_LIMITED, False
        victim = None if reason is None else self._admission.victim(reason, request, resolved)
        if victim is None:
            return reason, False
        if not self._spilling.settle(victim, now):
            self._allocator.evict(victim, now)
        return None, True

    def _must_wait_for_others(self, request: Request, resolved: ResolvedRequest) -> bool:
        """Whether requests with earlier places come back first, until `assign`."""
        if not self._allocator.is_held:
            return False
        has_place = self.options.queue.has_place(self.queue, request, resolved)
        return request.timeout_s > 0.0 and has_place

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """The client of a queued request left; no error if it was settled already."""
        with self._call:
            if ticket.is_waiting:
                ticket.is_waiting = False
                self._allocator.leave(ticket)
                self._allocator.after_leaving(ticket, now)

    def cancel(self, ticket: Ticket, now: float, reason: Reason = Reason.CANCELLED) -> None:
        """Remove a queued request; no error if it was settled already."""
        with self._call:
            if ticket.is_waiting:
                self._allocator.reject(ticket, reason, now)
                self._allocator.after_leaving(ticket, now)

    def release(
        self, lease: Lease, end: LeaseEnd, now: float, *, is_received: bool = True
    ) -> float | None:
        """An exchange ended; its slot goes to the next queued request once the slot is free.

        A server that has sent all of a response is free before that has passed: then `is_received`
        is false, and `conclude` follows. Returns the time of its first token, None if it had none
        or that is not known. Raises `LeaseError` if the lease was released before.
        """
        with self._call:
            address = lease.address
            self.ledger.release(lease, end, now)
            self.state.uploads.upload_ended(lease)
            if end is not LeaseEnd.SERVED:
                self._outbox.scrape(address)
                self._wake()
            first_token_at = None
            try:
                first_token_at = self._learn_from(lease, end, now, is_received=is_received)
            except Exception as error:  # noqa: BLE001 - the slot is free, whatever is learned
                self._outbox.step_failed("learning from a request's end", error)
            self._allocator.after_capacity_change(address, now)
            return first_token_at

    def conclude(self, lease: Lease, request: Request, now: float, *, is_broken: bool) -> None:
        """The response of a request that was released before has passed, or its server broke it
        off."""
        if lease.address not in self.fleet:
            return
        with self._call:
            if self.state.attribution.response_ended(lease, request, now, is_broken=is_broken):
                self._allocator.after_capacity_change(lease.address, now)
                self._outbox.wake_at(self.state.outliers.next_expiry())

    def _learn_from(
        self, lease: Lease, end: LeaseEnd, now: float, *, is_received: bool
    ) -> float | None:
        state = self.state
        state.model_loads.released(lease, now)
        run = state.in_flight.end(lease, now)
        if run is None:
            state.outliers.lease_ended(lease, now)
            return None
        state.traffic_counter.lease_ended(lease, run, end, now)
        if is_received:  # the caller assigns the slots that this opens
            state.attribution.lease_ended(lease, run, end, now)
        first_token_at, bounds = state.slo.evaluate_end(lease, run, end, now)
        if end is LeaseEnd.SERVED:
            state.feedback.on_completion(lease, run, now, bounds)
        if state.sizes is not None:
            state.sizes.learn(lease, run, end, now)
        if self.ledger.shares_contexts:
            learn_length(state, lease, run, end, now)
        return first_token_at

    def responded(
        self,
        lease: Lease,
        now: float,
        *,
        served: Address | None = None,
        has_headers: bool = True,
        is_stream: bool = True,
        is_error: bool = False,
        fault: Fault | None = None,
        may_be_overflow: bool = False,
    ) -> None:
        """The response headers came, or Envoy's own if not `has_headers`.

        The lease moves to `served`, if that is another endpoint of the fleet. A response that is no
        stream came whole with its headers. With a `fault` the server failed the request, unless it
        `may_be_overflow`, a full context, and its slots may share one. Only the first call for a
        lease counts as its response.
        """
        if served is not None and served != lease.address and served in self.fleet:
            self._move(lease, served, now)
        if has_headers:
            self._answered(lease, now, is_stream=is_stream, is_error=is_error)
        if fault is not None and not (may_be_overflow and self.overflowed(lease, now)):
            self.failed(lease, fault, now)

    def _move(self, lease: Lease, address: Address, now: float) -> None:
        with self._call:
            picked = lease.address
            endpoint = self.fleet.get(address)
            assert endpoint is not None
            _, pool, _ = slot_pool(endpoint, self.ledger.endpoint_slots(address), lease.model)
            self.ledger.move(lease, address, now, pool)
            try:
                for learner in self.state.learners:
                    learner.moved(lease.id, picked, address, now)
            except Exception as error:  # noqa: BLE001 - the lease has moved, whatever is learned
                self._outbox.step_failed("learning from a fallback", error)
            self._allocator.after_capacity_change(address, now)
            self._allocator.after_capacity_change(picked, now)

    def _answered(self, lease: Lease, now: float, *, is_stream: bool, is_error: bool) -> None:
        self.state.uploads.upload_ended(lease)
        run = self.state.in_flight.answered(lease, now)
        if run is None:
            return
        run.is_stream, run.is_error = is_stream, is_error
        if not is_error:
            lease.answered_at = now
        self.state.slo.evaluate_headers(lease, run, now)
        if not is_error:
            self.state.pauses.served(lease.address)
            self.state.feedback.on_response_headers(lease, run, now)
            if self.state.outliers.responded(lease, run.request, now, is_whole=not is_stream):
                with self._call:
                    self._allocator.after_capacity_change(lease.address, now)

    def failed(self, lease: Lease, fault: Fault, now: float) -> None:
        """The server failed the request, or breaks off its response; only the first call for a
        lease counts."""
        with self._call:
            if self.state.attribution.request_failed(lease, fault, now):
                self._allocator.after_capacity_change(lease.address, now)
            self._outbox.wake_at(self.state.outliers.next_expiry())

    def paused(self, lease: Lease, retry_after_s: float | None, now: float) -> None:
        """The server answered 429: it gets no requests for a while (`outliers/pauses.py`). That of
        one that shows its slots is no news: its own count says when it takes more."""
        endpoint = self.fleet.get(lease.address)
        if endpoint is None or self.ledger.endpoint_slots(lease.address).reports_busy_slots:
            return
        with self._call:
            is_paused = endpoint.paused_until is not None
            pause_s = self.state.pauses.next_s(lease.address, retry_after_s, is_paused=is_paused)
            endpoint.paused_until = max(endpoint.paused_until or now, now + pause_s)
            self._paused[endpoint.address] = endpoint
            self._allocator.after_capacity_change(lease.address, now)
            self._outbox.wake_at(endpoint.paused_until)

    def overflow_read(self, address: Address, model: str | None, now: float) -> None:
        """The end of a stream says that the context of its server was full. Its request may have
        ended before."""
        with self._call:
            if overflow_read(self.state, address, model, now):
                self._outbox.scrape(address)
                self._allocator.after_capacity_change(address, now)

    def overflowed(self, lease: Lease, now: float) -> bool:
        """The server seems to have failed the request because the context that its slots share was
        full. Returns whether that may be; if not, it `failed`."""
        with self._call:
            is_possible = overflowed(self.state, lease, now)
            if is_possible:
                self._outbox.scrape(lease.address)
                self._allocator.after_capacity_change(lease.address, now)
            return is_possible

    def upload_ended(self, lease: Lease) -> None:
        """The request body is complete."""
        self.state.uploads.upload_ended(lease)

    def upload_failed(self, request: Request, wasted_s: float, now: float) -> None:
        """The rest of the body did not come, or came slowly while other requests waited. It cost
        `wasted_s` slot-seconds."""
        endpoints = (self.ledger.endpoint_slots(endpoint.address) for endpoint in self.fleet)
        slots = sum(endpoint.slots for endpoint in endpoints)
        self.state.uploads.failed(request, wasted_s, slots, now)

    def passing(self, constraints: Constraints = UNCONSTRAINED) -> list[Address]:
        """The pickable endpoints for a request that takes no slot, best first, whether their slots
        are free or not; may be empty."""
        return self.options.fallbacks.passing(self.state.rankings.at(constraints))

    def close(self, now: float) -> None:
        """Shut down: reject all queued requests and all arrivals."""
        self._is_closed = True
        with self._call:
            for ticket in list(self.queue):
                self._allocator.reject(ticket, Reason.SHUTTING_DOWN, now)

    # Requests of another process: see `takeover`

    def hold(self, last_ticket: int | None = None, now: float = 0.0) -> None:
        """Assign no slot until `assign`. A new request is queued, if it may be; at the beginning of
        a takeover, as a ticket with an id above `last_ticket`, those below being of other leaders.
        """
        if last_ticket is not None:
            self.state.queue.skip_to(last_ticket, now)
        self._allocator.is_held = True

    def adopt(self, held: HeldLease, request: Request, now: float) -> Picked | None:
        """Continue a lease that another process opened; None if its endpoint is unknown, then
        scrapes count its slots as foreign. Nothing is learned from how long it took."""
        if held.address not in self.fleet:
            return None
        with self._call:
            resolved = self.of_pool(request).resolve(request)
            objective = self.of_pool(request).objective_of(request)
            lease = self.ledger.adopt(
                *(held.address, held.weight_slots, held.asked_slots, held.opened_at, held.model)
            )
            lease.bounds = self.state.under_bounds(
                ResolvedRequest(objective=objective, model=held.model), request
            ).bounds
            lease.groups = self.state.groups_of(request)
            for bound in lease.bounds:
                bound.request_began()
            for group in lease.groups:
                group.request_began()
            try:
                arrived_at = held.opened_at - held.waited_s
                self.state.in_flight.begin(lease, request, objective, arrived_at, 0.0)
            except Exception as error:  # noqa: BLE001 - the lease is open, whatever is recorded
                self._outbox.step_failed("adopting a lease", error)
            self._outbox.scrape(held.address)
            self._allocator.after_capacity_change(held.address, now)
            model = held.model if isinstance(resolved, Reason) else resolved.model or held.model
            return Picked(
                lease=lease, fallbacks=held.fallbacks, waited_s=held.waited_s, model=model
            )

    def place(self, request: Request, place: Place, now: float) -> Decision:
        """Queue a request where it was queued before, however many are queued. Slots that are free
        are its own unless `assign` is to follow."""
        with self._call:
            if self._is_closed:
                return self._allocator.rejected(Reason.SHUTTING_DOWN, 0.0)
            resolved = self.state.resolve(request)
            if isinstance(resolved, Reason):
                return self._allocator.rejected(resolved, now - place.entered_at)
            if self.state.why_failed(resolved.constraints):
                waited_s = now - place.entered_at
                return self._allocator.rejected(Reason.MODEL_FAILED, waited_s, resolved.constraints)
            request = in_time(self.of_pool(request).apply(request, resolved), resolved)
            ticket = self._allocator.place(
                resolved, request, place.ticket_id, place.entered_at, now
            )
            self._spilling.queued(ticket, now)
            return self._decision_on(ticket)

    def assign(self, now: float) -> None:
        """All that another process knew is here: assign every free slot."""
        with self._call:
            self._allocator.is_held = False
            for endpoint in list(self.fleet):
                self._allocator.after_capacity_change(endpoint.address, now)
            self._allocator.let_in_opened(now)
