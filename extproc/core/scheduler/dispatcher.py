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

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

from extproc.core.address import Address
from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.fleet.endpoint import ASSUMED_SLOTS, Endpoint, EndpointSpec, Intent
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Objective
from extproc.core.observation import Issue, Observation, ScrapeStatus, is_router
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.outliers.outlier_detection import OutlierOptions
from extproc.core.queue.aging import Aging
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason
from extproc.core.request import Request
from extproc.core.resolved_request import ResolvedRequest
from extproc.core.scheduler.admission import Admission, Preview, QueueLimits
from extproc.core.scheduler.audit import faults, rebuild
from extproc.core.scheduler.blame import blame, credit, seen
from extproc.core.scheduler.decision import Decision, Queued
from extproc.core.scheduler.events import CallScope, Event, Outbox
from extproc.core.scheduler.feedback import (
    on_completion,
    on_observation,
    on_response_headers,
    record_prediction,
)
from extproc.core.scheduler.forecast import QueuePosition
from extproc.core.scheduler.slo import evaluate_end, evaluate_headers
from extproc.core.scheduler.slot_allocator import SlotAllocator
from extproc.core.scheduler.state import State
from extproc.core.selection.cost import Cost
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.ledger import DrainingCaps
from extproc.core.slots.model_pools import slot_pool

CONNECT_FAILED = Issue(
    code="connect-failed",
    message="Envoy could not connect to it, or got a 503 response",
    remedy="check that the server runs, has loaded its model, and that Envoy can reach it",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherOptions:
    """Bounds of the dispatcher; docs/settings.md describes them for operators."""

    queue_max_requests: int = 1024
    queue_max_body_bytes: int = 1024 * 1024 * 1024
    fallbacks: int = 2
    failures_to_down: int = 3
    stale_after_s: float = 6.0
    draining_caps: DrainingCaps = field(default_factory=DrainingCaps)
    resolver: ResolverOptions = field(default_factory=ResolverOptions)
    aging: Aging = field(default_factory=Aging)
    outliers: OutlierOptions = field(default_factory=OutlierOptions)

    @property
    def queue_limits(self) -> QueueLimits:
        return QueueLimits(self.queue_max_requests, self.queue_max_body_bytes)


class Dispatcher:
    """Synchronous and pure: every call is atomic, none blocks, `now` is monotonic seconds."""

    def __init__(self, random: Random, options: DispatcherOptions | None = None) -> None:
        self.options = options or DispatcherOptions()
        self._outbox = Outbox()
        self.state = State(
            random,
            self.options.draining_caps,
            self.options.resolver,
            self.options.outliers,
            self._outbox,
        )
        self.fleet = self.state.fleet
        self.ledger = self.state.ledger
        self.queue = self.state.queue
        self._call = CallScope(self._outbox, self._repair)
        self._allocator = SlotAllocator(
            self.state, self._outbox, self.options.fallbacks, self.options.aging
        )
        self._admission = Admission(self._allocator, self.queue, self.state.uploads, random)
        self._limits = self.options.queue_limits
        self._fresh_until: OrderedDict[Address, float] = OrderedDict()
        self._is_closed = False

    def renew(self, options: DispatcherOptions) -> None:
        """Apply changed bounds; those of the resolver, the ledger and aging need a restart."""
        self.options = options
        self._limits = options.queue_limits
        self._allocator.fallbacks = options.fallbacks

    # Events

    def on_events(self, announce: Callable[[], None]) -> None:
        """Call `announce` after each call that left events. `announce` takes them and must not
        raise. It may call the dispatcher again."""
        self._call.announce = announce

    def take_events(self) -> list[Event]:
        """The events of the calls so far, in order; each is returned once."""
        return self._outbox.take()

    def faults(self, now: float) -> list[str]:
        """Inconsistencies of the state, as text for the log; empty if there are none.

        For the auditor and for tests: O(leases + tickets).
        """
        return faults(self.state, now)

    def rebuild(self, now: float) -> None:
        """Derive all derived state again, from the existing leases and tickets."""
        with self._call:
            self._repair()
            for endpoint in list(self.fleet):
                self._allocator.after_capacity_change(endpoint.address, now)

    def _repair(self) -> None:
        rebuild(self.state)
        self._allocator.rerank_all()
        self._wake()

    # Requests

    def submit(self, request: Request, now: float) -> Decision:
        """Decide on a new request. A `Queued` one ends in a `Settled` event or by `withdraw`."""
        with self._call:
            if self._is_closed:
                return self._allocator.rejected(Reason.SHUTTING_DOWN, 0.0)
            if self.state.poison.is_poison(request.fingerprint, now):
                return self._allocator.rejected(Reason.POISON_REQUEST, 0.0)
            resolved = self.state.resolver.resolve(request)
            if isinstance(resolved, Reason):
                return self._allocator.rejected(resolved, 0.0)
            request = self.state.resolver.apply(request, resolved)
            address, target = self._admission.goal(resolved, request, self._limits, now)
            if address is None:
                reason = self._why_rejected(request, resolved.objective, now)
                if reason is not None:
                    self.state.in_flight.rejected(resolved.objective, now)
                    reason = self._allocator.unless_empty(reason, resolved.constraints)
                    return self._allocator.rejected(reason, 0.0, resolved.constraints)
                # An eviction may have freed reserved slots.
                address = self._allocator.find_available(resolved, request, now)
            if address is not None and target is None:
                return self._allocator.pick(address, request, resolved, now, now)
            ticket = self._allocator.enqueue(resolved, request, target, now)
            if not ticket.is_waiting:  # its arrival freed slots that were reserved for another
                settlement = self._outbox.settlement_of(ticket)
                assert settlement is not None
                return settlement
            return Queued(ticket=ticket)

    def _why_rejected(self, request: Request, objective: Objective, now: float) -> Reason | None:
        """Why it may not be queued, or None; evicts another request if the queue is full."""
        reason = self._admission.why_not_wait(request, objective, self._limits, now)
        if reason is not Reason.QUEUE_FULL:
            return reason
        victim = self._admission.victim(request, objective, self._limits)
        if victim is None:
            return reason
        self._allocator.evict(victim, now)
        return None

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

    def release(self, lease: Lease, end: LeaseEnd, now: float) -> float | None:
        """An exchange ended; its slot goes to the next queued request once the slot is free.

        Returns the time of its first token, None if it had none or that is not known. Raises
        `LeaseError` if the lease was released before.
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
                first_token_at = self._learn_from(lease, end, now)
            except Exception as error:  # noqa: BLE001 - the slot is free, whatever is learned
                self._outbox.step_failed("learning from a request's end", error)
            self._allocator.after_capacity_change(address, now)
            return first_token_at

    def _learn_from(self, lease: Lease, end: LeaseEnd, now: float) -> float | None:
        self.state.model_loads.released(lease, now)
        run = self.state.in_flight.end(lease, now)
        if run is None:
            self.state.outliers.ended(lease, now)
            return None
        credit(self.state, lease, run, end, now)  # the caller assigns the slots that this opens
        first_token_at, bounds = evaluate_end(self.state, lease, run, end, now)
        if end is LeaseEnd.SERVED:
            on_completion(self.state, lease, run, now, bounds)
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
            pool = slot_pool(endpoint, self.ledger.endpoint_slots(address), lease.model).model
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

    def passing(self, allowed: frozenset[Address] | None = None) -> list[Address]:
        """The pickable endpoints for a request that takes no slot, best first, whether their slots
        are free or not; may be empty. `allowed` restricts them, None allows any."""
        constraints = UNCONSTRAINED if allowed is None else Constraints(allowed=allowed)
        return self.state.rankings.at(constraints).best(1 + self.options.fallbacks)

    # Fleet and observations

    def observe(self, observation: Observation, now: float) -> None:
        """Apply the result of a scrape.

        An observation of an endpoint outside the fleet is ignored, and so is one that began
        before the last one that was applied.
        """
        endpoint = self.fleet.get(observation.address)
        if endpoint is None or not self.ledger.endpoint_slots(endpoint.address).is_newer(
            observation
        ):
            return
        with self._call:
            self._observe(endpoint, observation, now)

    def _observe(self, endpoint: Endpoint, observation: Observation, now: float) -> None:
        endpoint_slots = self.ledger.endpoint_slots(endpoint.address)
        is_replaced = endpoint_slots.is_replaced_by(observation)
        if is_replaced:
            self.state.prefix_caches.forget(endpoint.address)
            self.state.sessions.forget(endpoint.address)
            self.state.latency.endpoint(endpoint.address).replaced()
            endpoint.replaced()
        seen(self.state, observation, now, is_replaced=is_replaced)
        endpoint.observe(observation, self.options.failures_to_down)
        self.ledger.observe(observation, now)
        if endpoint_slots.next_recheck is not None or endpoint_slots.has_draining:
            self._wake()
        if observation.status in (ScrapeStatus.READY, ScrapeStatus.ASLEEP):
            if endpoint.spec.slots is not None:
                endpoint_slots.slots = endpoint.spec.slots
            elif endpoint_slots.slots == 0 and observation.slots is None:
                endpoint_slots.slots = ASSUMED_SLOTS
            # Neither a count nor an issue: `/slots` was left alone, and what is known holds.
            is_current = observation.busy_slots is not None or not observation.issues
            if is_current or not endpoint_slots.reports_busy_slots:
                endpoint.refresh(observation.answered_at)
                self._expect_next_scrape(endpoint, now)
        if observation.busy_slots is not None:
            try:
                on_observation(self.state, endpoint, observation)
            except Exception as error:  # noqa: BLE001 - the slots count, whatever is learned
                self._outbox.step_failed("learning from an observation", error)
        if is_replaced and not is_router(observation.models):
            self._allocator.close_model_pools(endpoint_slots, now)
        self._allocator.change_models(self.state.resolver.report(endpoint), now)
        self._allocator.drop_reservations(endpoint, endpoint_slots, now)
        self._allocator.on_capacity_change(endpoint.address, now)
        if observation.models:
            self._allocator.on_model_loads(endpoint, observation.began_at, now)

    def connect_failed(self, address: Address, now: float) -> None:
        """Envoy could not connect, or got a 503: the endpoint is down until a scrape that begins
        after `now` succeeds."""
        endpoint = self.fleet.get(address)
        if endpoint is not None:
            with self._call:
                self.state.outliers.connect_failed(endpoint, now)
                self._outbox.wake_at(self.state.outliers.next_expiry())
                endpoint.lose((CONNECT_FAILED,))
                self.ledger.endpoint_slots(address).ignore_before(now)
                self._outbox.scrape(address)
                self._allocator.on_capacity_change(address, now)

    def set_members(self, source: str, specs: Iterable[EndpointSpec], now: float) -> None:
        """Replace the endpoints of `source`; removed endpoints finish their requests."""
        with self._call:
            changed = self.fleet.set_members(source, specs)
            for address in changed:
                self.ledger.add_endpoint(address, now)
                self.state.resolver.expect(address)
            if changed:
                self._outbox.membership_changed()
                self._allocator.on_capacity_changes(changed, now)

    def set_intent(self, address: Address, intent: Intent, now: float) -> None:
        """Set the operator's intent for an endpoint; raises `KeyError` if it is unknown."""
        with self._call:
            self.fleet.set_intent(address, intent)
            self._outbox.membership_changed()
            self._allocator.on_capacity_change(address, now)

    def set_routable(self, address: Address, is_routable: bool, now: float) -> None:
        """Whether every Envoy has this endpoint in its configuration."""
        endpoint = self.fleet.get(address)
        if endpoint is not None and endpoint.is_routable is not is_routable:
            with self._call:
                endpoint.is_routable = is_routable
                self._allocator.on_capacity_change(address, now)

    def set_envoy_issue(self, address: Address, issue: Issue | None) -> None:
        """The problem in Envoy's configuration that keeps requests away, for display."""
        endpoint = self.fleet.get(address)
        if endpoint is not None:
            endpoint.envoy_issue = issue

    def close(self, now: float) -> None:
        """Shut down: reject all queued requests and all arrivals."""
        self._is_closed = True
        with self._call:
            for ticket in list(self.queue):
                self._allocator.reject(ticket, Reason.SHUTTING_DOWN, now)

    def needs_frequent_scrapes(self, address: Address) -> bool:
        """Whether its state may change without our requests, so that it needs many scrapes."""
        endpoint = self.fleet.get(address)
        if endpoint is None:
            return False
        endpoint_slots = self.ledger.endpoint_slots(address)
        is_settled = endpoint.is_serving and endpoint.consecutive_failures == 0
        is_settled = is_settled and not self.state.model_loads.pending_at(address)
        return not is_settled or endpoint_slots.foreign_slots > 0 or endpoint_slots.has_draining

    def lacks_bytes(self, request: Request) -> bool:
        """Whether queued bodies leave too few bytes for this request to be queued."""
        return self._admission.lacks_bytes(request, self._limits) > 0

    def is_wanted(self, lease: Lease) -> bool:
        """Whether a queued request could use the slots of this lease. O(eligible queues)."""
        endpoint = self.fleet.get(lease.address)
        return endpoint is not None and self.queue.has_any_for(endpoint)

    def has_leases(self, address: Address) -> bool:
        """Whether our requests run there; False for an unknown endpoint."""
        return address in self.fleet and bool(self.ledger.endpoint_slots(address).leases)

    def preview(self, resolved: ResolvedRequest, request: Request, now: float) -> Preview:
        """What `submit` would decide now. Changes nothing; the random state is restored."""
        if self._is_closed:
            return Preview(None, None, Reason.SHUTTING_DOWN)
        return self._admission.preview(resolved, request, self._limits, now)

    def cost_at(
        self, resolved: ResolvedRequest, request: Request, address: Address, now: float
    ) -> Cost:
        """The cost at a member of the fleet, as `submit` computes it. Changes nothing."""
        return self._allocator.cost_at(resolved, request, address, now)

    def position_of(self, ticket: Ticket, now: float) -> QueuePosition:
        """The queue position of a queued request, and the seconds until it is served."""
        return self._allocator.forecast.position_of(ticket, now)

    def position_of_arrival(
        self, resolved: ResolvedRequest, request: Request, now: float
    ) -> QueuePosition:
        """The queue position that a request would get now. Changes nothing."""
        return self._allocator.forecast.position_of_arrival(resolved, request, now)

    @property
    def last_event_at(self) -> float:
        """The time of the last change of any endpoint."""
        return self._allocator.last_event_at

    def expected_s(self, position: int) -> float | None:
        """Seconds until the request at `position` (from 1) gets a slot; None if unknown."""
        return self._allocator.forecast.expected_s(UNCONSTRAINED, position, self.last_event_at)

    # Time

    def advance(self, now: float) -> None:
        """Handle what is due: queue deadlines, expired draining leases, old observations."""
        with self._call:
            try:
                self._time_out_expired(now)
                for address in self.ledger.expire(now):
                    self._allocator.after_capacity_change(address, now)
                self._scrape_agents_again()
                self._allocator.expire_affinity_waits(now)
                for model in self.state.model_loads.expired(now):
                    self._allocator.load_ended(model, now)
                for address in self.state.outliers.advance(now):
                    self._allocator.after_capacity_change(address, now)
                self._age(now)
            finally:
                self._wake()

    def _scrape_agents_again(self) -> None:
        """After a client left, our scraper returns often by itself; an agent must be asked."""
        for address in self.ledger.unproved:
            endpoint = self.fleet.get(address)
            if endpoint is not None and endpoint.spec.is_reported:
                self._outbox.scrape(address)

    def _time_out_expired(self, now: float) -> None:
        late = self.queue.expired(now)
        for ticket in late:
            self._allocator.leave_expired(ticket)
        for ticket in late:
            self._allocator.time_out(ticket, now)
        for ticket in late:
            self._allocator.release_reservation(ticket, now)

    def _age(self, now: float) -> None:
        """Endpoints whose last observation is too old become the last choice."""
        while self._fresh_until and next(iter(self._fresh_until.values())) <= now:
            address, _ = self._fresh_until.popitem(last=False)
            endpoint = self.fleet.get(address)
            if endpoint is not None:
                endpoint.is_fresh = False
                self._allocator.after_capacity_change(address, now)

    def next_wakeup(self) -> float | None:
        """When `advance` must be called next, or None."""
        stale = next(iter(self._fresh_until.values()), None)
        times = (
            self.queue.next_deadline(),
            self.ledger.next_expiry(),
            self.state.model_loads.next_expiry(),
            self.state.affinity_waits.next_expiry(),
            self.state.outliers.next_expiry(),
            stale,
        )
        return min((when for when in times if when is not None), default=None)

    def _expect_next_scrape(self, endpoint: Endpoint, now: float) -> None:
        self._fresh_until[endpoint.address] = now + self.options.stale_after_s
        self._fresh_until.move_to_end(endpoint.address)
        if len(self._fresh_until) == 1:
            self._wake()

    def _wake(self) -> None:
        self._outbox.wake_at(self.next_wakeup())
