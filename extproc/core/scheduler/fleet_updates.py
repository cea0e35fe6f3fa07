"""What happens to the fleet: observations, changes of membership, and time that passes.

The part of the dispatcher that hears of servers; requests are in `dispatcher`.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from random import Random

from extproc.core.address import Address
from extproc.core.constraints import NO_POOL
from extproc.core.events import CallScope, Event
from extproc.core.fleet.endpoint import ASSUMED_SLOTS, Endpoint, EndpointSpec, Intent
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.learning.learned import Learned
from extproc.core.observation import (
    Issue,
    ModelReading,
    Observation,
    ScrapeStatus,
)
from extproc.core.options import DispatcherOptions
from extproc.core.placement.machine import Power
from extproc.core.placement.model_load import ModelLoad
from extproc.core.rejection import Reason
from extproc.core.request import Request
from extproc.core.scheduler.admission import Admission
from extproc.core.scheduler.audit import faults, rebuild
from extproc.core.scheduler.slot_allocator import SlotAllocator
from extproc.core.scheduler.spilling import Spilling
from extproc.core.scheduler.token_claims import observe_tokens, share_contexts
from extproc.core.selection.rules import Rules
from extproc.core.state import State
from extproc.core.views.scale_advisor import ScaleAdvisor

CONNECT_FAILED = Issue(
    code="connect-failed",
    message="Envoy could not connect to it, or got a 503 response",
    remedy="check that the server runs, has loaded its model, and that Envoy can reach it",
)


class FleetUpdates:
    """The state, and every call about servers. `Dispatcher` adds those about requests."""

    def __init__(self, random: Random, options: DispatcherOptions | None = None) -> None:
        self.state = State(random, options or DispatcherOptions())
        self._outbox = self.state.outbox
        self.fleet = self.state.fleet
        self.ledger = self.state.ledger
        self.queue = self.state.queue
        self.resolver = self.state.resolver
        """What the names in a request mean."""
        self.subset_hints = self.state.subset_hints
        """The subsets of endpoints that gateways named lately."""
        self.conversations = self.state.conversations
        """Which server has which conversation."""
        self._call = CallScope(self._outbox, self._repair)
        self._allocator = SlotAllocator(self.state)
        self._spilling = Spilling(self.state, self._allocator)
        self._admission = Admission(self._allocator, self.state)
        self._scale = ScaleAdvisor(self.state)
        self._fresh_until: OrderedDict[Address, float] = OrderedDict()
        self._paused: dict[Address, Endpoint] = {}
        """Those that asked for no more requests for a while."""
        self._is_closed = False

    def of_pool(self, request: Request) -> RequestResolver:
        """What the names in this request mean, in its pool."""
        return self.resolver.of_pool(request.pool)

    @property
    def options(self) -> DispatcherOptions:
        """The options that apply now."""
        return self.state.options

    def renew(self, options: DispatcherOptions, now: float | None = None) -> None:
        """Apply changed bounds, limits, models and objectives; those of the ledger, outliers, aging
        and the order need a restart. Requests that run or are queued keep what they were resolved
        to. `now` defaults to the time of the last event."""
        self.state.options = options
        self.state.resolver.renew(options.resolver)
        self._reject_without_pool(now)
        bounds = self.state.bounds
        if options.bounds.limits or not bounds.is_empty:
            with self._call:
                bounds.renew(options.bounds)
                self.queue.reorder()
                self._allocator.assign_everywhere(self.state.last_event_at if now is None else now)
        with self._call:
            self.state.groups.renew(options.client_limits)
            self._allocator.let_in_opened(self.state.last_event_at if now is None else now)

    def _reject_without_pool(self, now: float | None) -> None:
        """Queued requests for a pool that is not configured any more can go nowhere."""
        lost = [one for one in self.queue if not self.state.resolver.has_pool(one.request.pool)]
        if lost:
            at = self.state.last_event_at if now is None else now
            with self._call:
                for ticket in lost:
                    self._allocator.reject(ticket, Reason.NO_ENDPOINT, at)
                for ticket in lost:
                    self._allocator.after_leaving(ticket, at)

    def set_rules(self, rules: Rules | None, now: float) -> None:
        """Apply the operators' rules in place of those before, to queued requests, too. O(queued
        requests x filters x endpoints)."""
        if rules is None and self.state.rules is None:
            return
        with self._call:
            self.state.set_rules(rules)
            self._require_picks()
            if self._allocator.rule_filters.ask_all(list(self.queue)):
                self._allocator.assign_everywhere(now)
            self._wake()

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
        offer = endpoint.offer, endpoint.runner
        has_answered = observation.status in (ScrapeStatus.READY, ScrapeStatus.ASLEEP)
        if has_answered and endpoint.spec.slots is not None:
            observation = replace(observation, slots=endpoint.spec.slots)
        is_replaced = endpoint_slots.is_replaced_by(observation)
        if is_replaced:
            endpoint.replaced()
            for learner in self.state.learners:
                learner.replaced(endpoint.address, now)
        self.state.attribution.observed(observation, now, is_replaced=is_replaced)
        apis = endpoint.apis
        endpoint.observe(observation, self.options.health)
        if endpoint.apis != apis:
            self.fleet.apis_changed()
        if not endpoint.spec.is_far:
            self.state.contexts.report(endpoint.address, endpoint.context_tokens)
        self.ledger.observe(observation, now)
        share_contexts(self.state, endpoint)
        if endpoint_slots.next_recheck is not None or endpoint_slots.has_draining:
            self._wake()
        if has_answered:
            if endpoint_slots.slots == 0 and observation.slots is None:
                endpoint_slots.slots = ASSUMED_SLOTS
            # Neither a count nor an issue: `/slots` was left alone, and what is known holds.
            is_current = observation.busy_slots is not None or not observation.issues
            if is_current or not endpoint_slots.reports_busy_slots:
                endpoint.refresh(observation.answered_at)
                self._expect_next_scrape(endpoint, now)
        if observation.busy_slots is not None:
            try:
                self._learn_from_scrape(endpoint, observation)
            except Exception as error:  # noqa: BLE001 - the slots count, whatever is learned
                self._outbox.step_failed("learning from an observation", error)
        if is_replaced and not observation.has_model_pools:
            self._allocator.close_model_pools(endpoint_slots, now)
        self._allocator.change_models(self.state.resolver.report(endpoint), now)
        is_given_up = not endpoint.has_reported and not endpoint.is_answering
        is_moved = False
        if is_given_up or (endpoint.offer, endpoint.runner) != offer:
            is_moved = self._is_moved_by_rules((endpoint.address,))
            self._allocator.refit_contexts(now)
        self._require_picks()
        self._allocator.drop_reservations(endpoint, endpoint_slots, now)
        self._allocator.on_capacity_change(endpoint.address, now)
        if is_moved:
            self._allocator.assign_everywhere(now)
        if observation.models:
            self._allocator.on_model_loads(endpoint, observation.began_at, now)

    def _learn_from_scrape(self, endpoint: Endpoint, observation: Observation) -> None:
        runs = self.state.feedback.runs_of(endpoint, observation)
        endpoint_slots = self.ledger.endpoint_slots(endpoint.address)
        if self.ledger.shares_contexts:
            observe_tokens(self.state, endpoint_slots, observation, runs)
        self.state.feedback.on_observation(endpoint, observation, runs)
        # Two usual scrapes never see the same short answer, so its length would stay unknown.
        latency = self.state.latency.endpoint(endpoint.address)
        is_shared = self.ledger.shares_contexts and any(
            pool.tokens is not None for _, pool in endpoint_slots.pools()
        )
        if is_shared and latency.wants_scrape(is_used=bool(endpoint_slots.leases)):
            self._outbox.scrape(endpoint.address)

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
                self._expect(address, now)
                self._may_have_left_the_first_tier(address, now)
            if changed:
                self._outbox.membership_changed()
                is_moved = self._is_moved_by_rules(changed)
                self._allocator.on_capacity_changes(changed, now)
                if is_moved:
                    self._allocator.assign_everywhere(now)
                self._allocator.refit_contexts(now)

    def _expect(self, address: Address, now: float) -> None:
        """An endpoint came, went or changed, perhaps into another pool."""
        change = self.state.resolver.expect(address)
        endpoint = self.fleet.get(address)
        if change is not None and endpoint is not None:
            self._allocator.change_models(change, now)
            self._allocator.change_models(self.state.resolver.report(endpoint), now)
            self._allocator.drop_reservations(endpoint, self.ledger.endpoint_slots(address), now)

    def _may_have_left_the_first_tier(self, address: Address, now: float) -> None:
        """What the fleet knows of an endpoint of a higher tier is nothing that requests may ask
        for."""
        endpoint = self.fleet.get(address)
        if endpoint is not None and endpoint.spec.is_far:
            self.state.contexts.forget(address)
            self._allocator.change_models(self.state.resolver.forget(address), now)

    def limit_spill(self, left: int | None, closed: str = "") -> None:
        """How many further requests may be sent to higher tiers, None for any number, and why, as
        text for operators, if none."""
        self.state.spill_left, self.state.spill_closed = left, closed

    def _is_moved_by_rules(self, changed: Iterable[Address]) -> bool:
        """Whether queued requests may use other endpoints, as the rules see these that changed."""
        return self.state.rules is not None and self._allocator.rule_filters.ask_about(changed)

    def learned_version(self, address: Address) -> tuple[float, ...]:
        """Changes when more was learned of an endpoint."""
        return self.state.learned.version_of(address)

    def learned(self, address: Address | None) -> Learned:
        """What was learned of an endpoint, or with None of the fleet; see `learned`."""
        return self.state.learned.of(address)

    def relearn(self, address: Address | None, learned: Learned) -> None:
        """Take over what another process had learned. Raises `ValueError` or `TypeError` for what
        is not from `learned`; then some of it may be known."""
        with self._call:
            self.state.learned.restore(address, learned)

    def set_intent(self, address: Address, intent: Intent, now: float) -> None:
        """Set the operator's intent for an endpoint; raises `KeyError` if it is unknown."""
        with self._call:
            self.fleet.set_intent(address, intent, now)
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

    def set_loadable(
        self,
        machine: str,
        readings: Mapping[str, ModelReading],
        now: float,
        addresses: frozenset[Address] = frozenset(),
        pool: str = NO_POOL,
    ) -> None:
        """The models that a machine's keeper can load, by all of their names, and where it serves
        them; empty when it is gone. Requests for them are queued until one is loaded: those for
        this pool, the default one if it is empty."""
        with self._call:
            self.state.contexts.report_loadable(machine, readings)
            change = self.state.resolver.set_loadable(machine, readings, addresses, pool)
            self._allocator.change_models(change, now)
            self._allocator.refit_contexts(now)
            self._require_picks()

    def _require_picks(self) -> None:
        """Where keepers' models are not the only ones, or rules exclude endpoints, Envoy may choose
        no server by itself."""
        names, rules = self.state.resolver.names, self.state.rules
        requires_pick = bool(names.loadable) and names.catalog.has_several_models
        requires_pick = requires_pick or (rules is not None and rules.has_filters)
        if self.fleet.set_requires_pick(requires_pick):
            self._outbox.membership_changed()

    def set_loads(
        self, loads: Mapping[str, ModelLoad], failed: Mapping[str, str], now: float
    ) -> None:
        """The loads that requests wait for, by all names of the models, for forecasts and display;
        and why models cannot be loaded anywhere, with `""` if none can be. Requests for those are
        rejected. Where pools are configured, names have that of their pool before them."""
        self.state.loads = dict(loads)
        if failed == self.state.failed_models:
            return
        with self._call:
            self.state.failed_models = dict(failed)
            for ticket in list(self.queue) if failed else ():
                constraints = ticket.resolved.constraints
                if ticket.is_waiting and self.state.why_failed(constraints):
                    self._allocator.reject(ticket, Reason.MODEL_FAILED, now, constraints)
                    self._allocator.after_leaving(ticket, now)

    # Machines that sleep

    def set_wakes(self, wakes: Mapping[str, ModelLoad], *, can_wake_keepers: bool = False) -> None:
        """The machines that wake for queued requests, by all names of the models that they will
        serve, `""` for requests that name none: for forecasts and display. With `can_wake_keepers`,
        further ones with a keeper are off. Where pools are configured, names have that of their
        pool before them."""
        self.state.wakes = dict(wakes)
        self.state.can_wake_keepers = can_wake_keepers

    def set_keepers_off(self, addresses: Collection[Address]) -> None:
        """Where the keepers serve whose machines sleep, or are about to. O(endpoints)."""
        for endpoint in self.fleet:
            endpoint.set_keeper_off(endpoint.address in addresses)

    def set_power(self, addresses: Iterable[Address], power: Power, now: float) -> None:
        """The state of the machine of these endpoints: while it is being put to sleep, they get no
        new requests from this call on."""
        with self._call:
            for endpoint in filter(None, map(self.fleet.get, addresses)):
                endpoint.is_waking = power is Power.WAKING
                is_going_off = power is Power.GOING_OFF
                if endpoint.is_going_off is not is_going_off:
                    endpoint.is_going_off = is_going_off
                    self._allocator.on_capacity_change(endpoint.address, now)

    def set_wake_issue(
        self, addresses: Iterable[Address], issue: Issue | None, *, is_lost: bool = False
    ) -> None:
        """The machine of these endpoints does not go to sleep or, with `is_lost`, does not wake or
        is on without their server; None if none of it is so any more."""
        for address in addresses:
            endpoint = self.fleet.get(address)
            if endpoint is not None:
                endpoint.set_wake_issue(issue, is_lost=is_lost)

    # Time

    def advance(self, now: float) -> None:
        """Handle what is due: queue deadlines, expired draining leases, old observations."""
        with self._call:
            try:
                self._spilling.advance(now)
                self._time_out_expired(now)
                for address in self.ledger.expire(now):
                    self._allocator.after_capacity_change(address, now)
                self._scrape_agents_again()
                self._allocator.expire_affinity_waits(now)
                for model in self.state.model_loads.expired(now):
                    self._allocator.load_ended(model, now)
                for address in self.state.outliers.advance(now):
                    self._allocator.after_capacity_change(address, now)
                if self.state.rules is not None and self._allocator.rule_filters.ask_again(now):
                    self._allocator.assign_everywhere(now)
                self._end_pauses(now)
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
            self._allocator.after_leaving(ticket, now)

    def _end_pauses(self, now: float) -> None:
        for address, endpoint in list(self._paused.items()):
            if endpoint.paused_until is None or endpoint.paused_until <= now:
                endpoint.paused_until = None
                del self._paused[address]
                if self.fleet.get(address) is endpoint:
                    self._allocator.after_capacity_change(address, now)

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
            self._allocator.rule_filters.next_ask(),
            self._spilling.next_check(),
            min((one.paused_until or 0.0 for one in self._paused.values()), default=None),
            stale,
        )
        return min((when for when in times if when is not None), default=None)

    def _expect_next_scrape(self, endpoint: Endpoint, now: float) -> None:
        fresh_s = self.options.health.fresh_s(len(self.fleet))
        self._fresh_until[endpoint.address] = now + fresh_s
        self._fresh_until.move_to_end(endpoint.address)
        if len(self._fresh_until) == 1:
            self._wake()

    def _wake(self) -> None:
        self._outbox.wake_at(self.next_wakeup())
