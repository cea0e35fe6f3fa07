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

from extproc.core.address import Address
from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.objective import Objective
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason
from extproc.core.request import Request, ResolvedRequest
from extproc.core.scheduler.blame import blame, conclude, credit
from extproc.core.scheduler.context_fit import fit_context
from extproc.core.scheduler.decision import Decision, Picked, Queued
from extproc.core.scheduler.feedback import on_completion, on_response_headers, record_prediction
from extproc.core.scheduler.introspection import Introspection
from extproc.core.scheduler.options import DispatcherOptions
from extproc.core.scheduler.sizing import learn_size
from extproc.core.scheduler.slo import evaluate_end, evaluate_headers
from extproc.core.scheduler.takeover import Arrival, HeldLease, Place
from extproc.core.scheduler.token_claims import learn_length, overflowed
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.model_pools import slot_pool

__all__ = ["Dispatcher", "DispatcherOptions"]


class Dispatcher(Introspection):
    """Synchronous and pure: every call is atomic, none blocks, `now` is monotonic seconds.

    Code outside the core reads `fleet` and `queue`, and calls methods; a test holds it to that.
    """

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
            resolved = self.resolve(request)
            if isinstance(resolved, Reason):
                return self._allocator.rejected(resolved, 0.0)
            if self.state.why_failed(resolved.constraints):
                return self._allocator.rejected(Reason.MODEL_FAILED, 0.0, resolved.constraints)
            self._scale.arrived(resolved, now)
            request = self.state.resolver.apply(request, resolved)
            address, target = self._admission.goal(resolved, request, now)
            if address is not None and self._must_wait_for_others(request):
                return Queued(ticket=self._allocator.enqueue(resolved, request, None, now, arrival))
            if address is None:
                reason = self._why_rejected(request, resolved.objective, now, may_queue=may_queue)
                if reason is not None:
                    if reason is not Reason.RATE_LIMITED:
                        self.state.in_flight.rejected(resolved.objective, now)
                    reason = self._allocator.unless_empty(reason, resolved.constraints)
                    return self._allocator.rejected(reason, 0.0, resolved.constraints)
                # An eviction may have freed reserved slots.
                address = self._allocator.find_available(resolved, request, now)
            if address is not None and (target is None or not may_queue):
                entered_at = now if arrival is None else arrival.at
                return self._allocator.pick(address, request, resolved, entered_at, now)
            ticket = self._allocator.enqueue(resolved, request, target, now, arrival)
            return self._decision_on(ticket)

    def _decision_on(self, ticket: Ticket) -> Decision:
        """The decision on a request that was just queued."""
        if ticket.is_waiting:
            return Queued(ticket=ticket)
        # Its arrival freed slots that were reserved for another, or it found some.
        settlement = self._outbox.settlement_of(ticket)
        assert settlement is not None
        return settlement

    def resolve(self, request: Request, random: Random | None = None) -> ResolvedRequest | Reason:
        """What the request means and needs, or why nothing can ever serve it. A dry run passes its
        own `random`."""
        resolved = self.state.resolver.resolve(request, random)
        if isinstance(resolved, Reason):
            return resolved
        return fit_context(self.state, resolved, request)

    def _why_rejected(
        self, request: Request, objective: Objective, now: float, *, may_queue: bool
    ) -> Reason | None:
        """Why it may not be queued, or None; evicts another request if the queue is full."""
        reason = self._admission.why_not_wait(request, objective, now)
        if not may_queue and (reason is None or reason is Reason.QUEUE_FULL):
            return Reason.RATE_LIMITED
        if reason is not Reason.QUEUE_FULL:
            return reason
        victim = self._admission.victim(request, objective)
        if victim is None:
            return reason
        self._allocator.evict(victim, now)
        return None

    def _must_wait_for_others(self, request: Request) -> bool:
        """Whether requests with earlier places come back first, until `assign`."""
        is_room = len(self.queue) < self.options.queue_max_requests
        return self._allocator.is_held and request.timeout_s > 0.0 and is_room

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """The client of a queued request left; no error if it was settled already."""
        with self._call:
            if ticket.is_waiting:
                ticket.is_waiting = False
                self._allocator.leave(ticket)
                self._allocator.release_reservation(ticket, now)

    def cancel(self, ticket: Ticket, now: float, reason: Reason = Reason.CANCELLED) -> None:
        """Remove a queued request; no error if it was settled already."""
        with self._call:
            if ticket.is_waiting:
                self._allocator.reject(ticket, reason, now)
                self._allocator.release_reservation(ticket, now)

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
            self.state.uploads.ended(lease)
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
            if conclude(self.state, lease, request, now, is_broken=is_broken):
                self._allocator.after_capacity_change(lease.address, now)
                self._outbox.wake_at(self.state.outliers.next_expiry())

    def _learn_from(
        self, lease: Lease, end: LeaseEnd, now: float, *, is_received: bool
    ) -> float | None:
        self.state.model_loads.released(lease, now)
        run = self.state.in_flight.end(lease, now)
        if run is None:
            self.state.outliers.ended(lease, now)
            return None
        self._scale.ended(lease, run, end, now)
        if is_received:
            credit(self.state, lease, run, end, now)  # the caller assigns the slots that this opens
        first_token_at, bounds = evaluate_end(self.state, lease, run, end, now)
        if end is LeaseEnd.SERVED:
            on_completion(self.state, lease, run, now, bounds)
        if self.state.sizes is not None:
            learn_size(self.state, self.state.sizes, lease, run, end, now)
        if self.ledger.shares_contexts:
            learn_length(self.state, lease, run, end, now)
        return first_token_at

    def served_by(self, lease: Lease, address: Address, now: float) -> None:
        """The response named its server: the lease moves there if it is another endpoint.

        If that server is no longer in the fleet, the lease stays where it is.
        """
        if address == lease.address or address not in self.fleet:
            return
        with self._call:
            picked = lease.address
            endpoint = self.fleet.get(address)
            assert endpoint is not None
            _, pool, _ = slot_pool(endpoint, self.ledger.endpoint_slots(address), lease.model)
            self.ledger.move(lease, address, now, pool)
            try:
                self.state.outliers.moved(lease, picked, now)
                run = self.state.in_flight.moved(lease, picked)
                if run is not None:
                    record_prediction(self.state, run, address)
            except Exception as error:  # noqa: BLE001 - the lease has moved, whatever is learned
                self._outbox.step_failed("learning from a fallback", error)
            self._allocator.after_capacity_change(address, now)
            self._allocator.after_capacity_change(picked, now)

    def upload_ended(self, lease: Lease) -> None:
        """The request body is complete."""
        self.state.uploads.ended(lease)

    def upload_failed(self, request: Request, wasted_s: float, now: float) -> None:
        """The rest of the body did not come, or came slowly while other requests waited. It cost
        `wasted_s` slot-seconds."""
        endpoints = (self.ledger.endpoint_slots(endpoint.address) for endpoint in self.fleet)
        slots = sum(endpoint.slots for endpoint in endpoints)
        self.state.uploads.failed(request, wasted_s, slots, now)

    def answered(
        self, lease: Lease, now: float, *, is_stream: bool = True, is_error: bool = False
    ) -> None:
        """The response headers came; a response that is no stream came whole with them.

        Call it after `served_by`. Only the first call for a lease counts.
        """
        self.state.uploads.ended(lease)
        run = self.state.in_flight.answered(lease, now)
        if run is None:
            return
        run.is_stream, run.is_error = is_stream, is_error
        if not is_error:
            lease.answered_at = now
        evaluate_headers(self.state, lease, run, now)
        if not is_error:
            on_response_headers(self.state, lease, run, now)
            if self.state.outliers.responded(lease, run.request, now, is_whole=not is_stream):
                with self._call:
                    self._allocator.after_capacity_change(lease.address, now)

    def failed(self, lease: Lease, fault: Fault, now: float) -> None:
        """The server failed the request. Call it after `answered` if headers came; only the first
        call for a lease counts."""
        with self._call:
            if blame(self.state, lease, fault, now):
                self._allocator.after_capacity_change(lease.address, now)
            self._outbox.wake_at(self.state.outliers.next_expiry())

    def overflowed(self, lease: Lease, now: float) -> bool:
        """The server seems to have failed the request because the context that its slots share was
        full. Returns whether that may be; if not, it `failed`."""
        with self._call:
            is_possible = overflowed(self.state, lease, now)
            if is_possible:
                self._outbox.scrape(lease.address)
                self._allocator.after_capacity_change(lease.address, now)
            return is_possible

    def passing(self, constraints: Constraints = UNCONSTRAINED) -> list[Address]:
        """The pickable endpoints for a request that takes no slot, best first, whether their slots
        are free or not; may be empty."""
        return self.state.rankings.at(constraints).best(1 + self.options.fallbacks)

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
            resolved = self.state.resolver.resolve(request)
            objective = self.state.resolver.objective_of(request)
            lease = self.ledger.adopt(
                *(held.address, held.weight_slots, held.asked_slots, held.opened_at, held.model)
            )
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
            resolved = self.resolve(request)
            if isinstance(resolved, Reason):
                return self._allocator.rejected(resolved, now - place.entered_at)
            if self.state.why_failed(resolved.constraints):
                waited_s = now - place.entered_at
                return self._allocator.rejected(Reason.MODEL_FAILED, waited_s, resolved.constraints)
            request = self.state.resolver.apply(request, resolved)
            ticket = self._allocator.place(
                resolved, request, place.ticket_id, place.entered_at, now
            )
            return self._decision_on(ticket)

    def assign(self, now: float) -> None:
        """All that another process knew is here: assign every free slot."""
        with self._call:
            self._allocator.is_held = False
            for endpoint in list(self.fleet):
                self._allocator.after_capacity_change(endpoint.address, now)
