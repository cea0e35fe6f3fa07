"""What code outside the core asks of it. No call changes anything."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from extproc.core.address import Address
from extproc.core.bounds import Bounds, is_held_back
from extproc.core.constraints import NO_POOL, UNRESOLVED, Constraints, qualified
from extproc.core.decision import Preview
from extproc.core.fleet.endpoint import ContextSource, Endpoint
from extproc.core.fleet.membership import Fleet
from extproc.core.options import DispatcherOptions
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.placement.demand import NO_DEMAND, ModelDemand
from extproc.core.placement.machine import KeptMachine
from extproc.core.placement.model_load import ModelLoad
from extproc.core.prediction.latency import LatencyEstimate
from extproc.core.queue.flow_order import QueueOrder
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request, ResolvedRequest
from extproc.core.request_groups import Group, full_group
from extproc.core.selection.cost import Cost
from extproc.core.selection.rules import Rules
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.slots.lease import Lease
from extproc.core.slots.token_pool import TokenPool
from extproc.core.state import State
from extproc.core.views.forecast import Forecast, QueuePosition
from extproc.core.views.scale_advisor import ModelScale, ScaleAdvisor
from extproc.core.views.waits import Waits
from extproc.core.views.wake_advisor import SleepingKeeper, WakeAdvisor


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCounts:
    """The slots of one endpoint, counted by use, for display.

    `idle` slots are available to the next request. `draining` are the leased ones whose client
    left, while the server may still work. `unusable` slots are not in use, and their server is not
    pickable: down or loading, drained, disabled, leaving, or unknown to Envoy.
    """

    total: int
    leased: int
    draining: int
    foreign: int
    idle: int
    unusable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """The tokens of the contexts that an endpoint's slots share, of a router those of its models
    together. `held` are in them now, `reserved` at their peak as far as that is likely, `free`
    neither; `source` says how it is known that they are shared."""

    total: int
    held: int
    reserved: int
    free: int
    source: ContextSource


DryRun = Callable[[ResolvedRequest, Request, float, bool], Preview]
"""What would become of a resolved request at that time, if it may be queued or not."""


class View:
    """The state of the core, to read."""

    def __init__(
        self, state: State, forecast: Forecast, scale: ScaleAdvisor, dry_run: DryRun
    ) -> None:
        self.state = state
        self.fleet: Fleet = state.fleet
        self.queue: RequestQueue = state.queue
        self._ledger = state.ledger
        self._forecast = forecast
        self._scale = scale
        self._dry_run = dry_run

    @property
    def options(self) -> DispatcherOptions:
        """The options that apply now."""
        return self.state.options

    @property
    def rules(self) -> Rules | None:
        """The operators' own rules; None without any."""
        return self.state.rules

    @property
    def bounds(self) -> Bounds:
        """The bounds of objectives, models, paths and pools, to read."""
        return self.state.bounds

    @property
    def spilled(self) -> int:
        """The number of requests that were sent to higher tiers since the start."""
        return self.state.spilled

    @property
    def spill_closed(self) -> str:
        """Why no further one is, as text for operators; empty if nothing but room decides."""
        return self.state.spill_closed

    @property
    def running_requests(self) -> int:
        """The number of requests that hold a slot."""
        return len(self.state.in_flight)

    def slots_at(self, address: Address) -> EndpointSlots:
        """The slots of an endpoint, to read. Raises `KeyError` for an unknown one."""
        return self._ledger.endpoint_slots(address)

    def slot_counts(self, endpoint: Endpoint) -> SlotCounts:
        """The slots of an endpoint, counted by use. O(1)."""
        return count_slots(endpoint, self._ledger.endpoint_slots(endpoint.address))

    def idle_slots(self, endpoint: Endpoint) -> int:
        """The slots of an endpoint that are available to the next request. O(1)."""
        return count_idle(endpoint, self._ledger.endpoint_slots(endpoint.address))

    def token_counts(self, endpoint: Endpoint) -> TokenCounts | None:
        """The tokens of an endpoint whose slots share a context; None for any other, and for one
        that does not answer. O(leases there)."""
        if not endpoint.is_answering:
            return None
        endpoint_slots = self._ledger.endpoint_slots(endpoint.address)
        source: ContextSource | None = None
        found: list[TokenPool] = []
        for model, pool in endpoint_slots.pools():
            if pool.tokens is not None:
                found.append(pool.tokens)
                reading = endpoint.models_by_name.get(model)
                shared = endpoint.shared_context(reading, pool.slots)
                source = source if shared is None else shared.source
        if source is None:
            return None
        return TokenCounts(
            total=sum(each.capacity_tokens for each in found),
            held=round(sum(min(each.held_tokens, each.capacity_tokens) for each in found)),
            reserved=round(sum(each.reserved_tokens for each in found)),
            free=round(sum(each.free_tokens for each in found)),
            source=source,
        )

    def leases(self) -> Iterable[Lease]:
        """All leases, open and draining."""
        return self._ledger.leases()

    def slo_totals(self) -> dict[tuple[str, ...], float]:
        """Requests with an SLO since the start, by objective and result."""
        return self.state.slo_attainment.totals()

    @property
    def queue_order(self) -> QueueOrder:
        """The order of queued requests within a flow; fixed at the start."""
        return self.queue.order

    def size_errors(self) -> dict[tuple[str, ...], float]:
        """How far estimates of sizes are off: the factor by model and quantile (0.5 and 0.9); empty
        unless the order is by size."""
        sizes = self.state.sizes
        if sizes is None:
            return {}
        return {
            (model, f"{share:g}"): factor
            for share in (0.5, 0.9)
            for model, factor in sizes.answers.error_factors(share).items()
        }

    def ejection_totals(self, address: Address) -> Mapping[Fault, int]:
        """Ejections of an endpoint since the start, by cause."""
        return self.state.outliers.totals.get(address, {})

    def latency_at(self, address: Address, now: float) -> tuple[LatencyEstimate, float]:
        """What was learned of an endpoint, and the decayed number of its samples: where they are
        few, the fleet's typical endpoint counts."""
        latency = self.state.latency
        return latency.estimate(address, now), latency.endpoint(address).weight

    def needs_frequent_scrapes(self, address: Address) -> bool:
        """Whether its state may change without our requests, so that it needs many scrapes."""
        endpoint = self.fleet.get(address)
        if endpoint is None:
            return False
        endpoint_slots = self._ledger.endpoint_slots(address)
        is_settled = endpoint.is_serving and endpoint.consecutive_failures == 0
        is_settled = is_settled and not self.state.model_loads.pending_at(address)
        return not is_settled or endpoint_slots.foreign_slots > 0 or endpoint_slots.has_draining

    def is_wanted(self, lease: Lease) -> bool:
        """Whether a queued request could use the slots of this lease. O(eligible queues)."""
        endpoint = self.fleet.get(lease.address)
        return endpoint is not None and self.queue.has_any_for(endpoint)

    def has_leases(self, address: Address) -> bool:
        """Whether our requests run there; False for an unknown endpoint."""
        return address in self.fleet and bool(self._ledger.endpoint_slots(address).leases)

    def preview(
        self, resolved: ResolvedRequest, request: Request, now: float, *, may_queue: bool = True
    ) -> Preview:
        """What `submit` would decide now. Changes nothing; the random state is restored."""
        return self._dry_run(resolved, request, now, may_queue)

    def cost_at(
        self, resolved: ResolvedRequest, request: Request, address: Address, now: float
    ) -> Cost:
        """The cost at a member of the fleet, as `submit` computes it. Changes nothing."""
        return self.state.endpoint_picker.cost_at(resolved, request, address, now)

    def position_of(self, ticket: Ticket, now: float) -> QueuePosition:
        """The queue position of a queued request, and the seconds until it is served."""
        return self._forecast.position_of(ticket, now)

    def positions_of(self, tickets: Iterable[Ticket], now: float) -> Iterator[QueuePosition]:
        """`position_of` each of these, computed together."""
        return self._forecast.positions_of(tickets, now)

    def position_of_arrival(
        self, resolved: ResolvedRequest, request: Request, now: float
    ) -> QueuePosition:
        """The queue position that a request would get now. Changes nothing."""
        return self._forecast.position_of_arrival(resolved, request, now)

    def all_served_s(self, now: float) -> float | None:
        """Seconds until all queued requests are served, by the same forecast."""
        return self._forecast.all_served_s(now)

    def demands(self, now: float, pool: str | None = None) -> dict[str | None, ModelDemand]:
        """The queued requests by the model that they name, None for those that name none; of
        several pools only those for this one, the default one if it is None. The seconds that they
        have waited are an estimate: O(constraint queues)."""
        wanted_pool = self.options.resolver.default_pool if pool is None else pool
        found: dict[str | None, ModelDemand] = {}
        for queue in self.queue.constraint_queues():
            if is_held_back(queue.bounds):
                continue  # another server would not help
            if queue.constraints.pool == wanted_pool:
                entered_at, waiting = queue.first_arrived().entered_at, len(queue)
            elif queue.constraints == UNRESOLVED:  # of all pools
                arrivals = [
                    ticket.entered_at
                    for ticket in self.queue
                    if ticket.queued_in is queue and ticket.request.pool == wanted_pool
                ]
                entered_at, waiting = min(arrivals, default=now), len(arrivals)
            else:
                continue
            if not waiting:
                continue
            longest_s = max(0.0, now - entered_at)
            model = queue.constraints.model
            known = found.get(model, NO_DEMAND)
            found[model] = ModelDemand(
                waiting=known.waiting + waiting,
                longest_wait_s=max(known.longest_wait_s, longest_s),
                waited_s=known.waited_s + longest_s * (1 + waiting) / 2,
                context_tokens=max(known.context_tokens, queue.constraints.context_tokens),
            )
        return found

    def canonical_in_pool(self, name: str) -> str:
        """The same for a name that has that of its pool before it, where pools are configured."""
        return self._scale.canonical(name)

    def name_to_scale(self, model: str, pool: str = NO_POOL) -> str:
        """The name by which `scale` knows a model of a pool, the default one without it."""
        return qualified(pool or self.options.resolver.default_pool, self.canonical_model(model))

    def scale(
        self, now: float, objective: str | None = None, names: Collection[str] = ()
    ) -> dict[str, ModelScale]:
        """The servers that each model needs; only for the requests of `objective` if that is
        given. Requests for unknown `names` count for these. O(endpoints' models + leases + queued
        requests)."""
        return self._scale.read(self.options.scale, now, objective, names)

    def wake_advisor(self, now: float, kept: Sequence[SleepingKeeper] = ()) -> WakeAdvisor | None:
        """Which machines sleep, and which should, those of keepers being `kept`; None where none
        can be woken."""
        if not kept and all(endpoint.spec.wake is None for endpoint in self.fleet):
            return None
        demands = {pool: self.demands(now, pool) for pool in self.pools or (NO_POOL,)}
        return WakeAdvisor(self.state, self.scale(now), demands, kept)

    @property
    def can_wake_keepers(self) -> bool:
        """Whether a machine with a keeper is off, and woken for requests."""
        return self.state.can_wake_keepers

    @property
    def pools(self) -> tuple[str, ...]:
        """The names of the pools; none where no pools are configured."""
        return tuple(self.options.resolver.pools)

    def queue_depths(self) -> dict[tuple[str, ...], float]:
        """The number of queued requests by criticality and pool. O(queued requests)."""
        return self.queue.depths_by_pool(self.pools)

    def pool_of_machine(self, machine: KeptMachine) -> str:
        """The pool for whose requests a machine loads models; empty without one."""
        return machine.pool or self.state.resolver.pool_of_machine(machine.name)

    def canonical_model(self, name: str) -> str:
        """One name for all names of a model; the name itself if it is unknown."""
        return self.state.resolver.names.catalog.canonical_name(name)

    def load_of(self, model: str | None, pool: str = NO_POOL) -> ModelLoad | None:
        """The load that requests for a model wait for in their pool, or the machine that wakes for
        them; None if there is none."""
        return self.state.load_of(model, pool)

    def wait_note(self, model: str | None, now: float, pool: str = NO_POOL) -> str:
        """What requests for a model wait for beside a slot, as a sentence; usually empty."""
        load = self.load_of(model, pool)
        return "" if load is None else load.note(now)

    def queue_note(self, resolved: ResolvedRequest, request: Request, now: float) -> str:
        """What a request that arrives now would wait for beside a slot, as a sentence; usually
        empty."""
        return self._note(resolved, request, full_group(resolved.groups), now)

    def note_of(self, ticket: Ticket, now: float) -> str:
        """What a queued request waits for beside a slot, as a sentence; usually empty."""
        return self._note(ticket.resolved, ticket.request, ticket.held_by, now)

    def _note(
        self, resolved: ResolvedRequest, request: Request, group: Group | None, now: float
    ) -> str:
        if group is not None:
            return group.description
        for bound in resolved.bounds:
            if bound.is_full:
                return f"{bound.description}, as many as its bound allows"
        note = self.wait_note(resolved.constraints.model, now, request.pool)
        return note or self.state.excluded_note(resolved, request)

    def order_of(self, ticket: Ticket) -> QueueOrder:
        """The order of the requests of its flow that wait as a queued request does."""
        return self.queue.order_under(ticket.resolved.bounds)

    def constrain(self, constraints: Constraints, request: Request) -> Constraints:
        """The constraints of a request that takes no slot, and of the rules."""
        return self.state.restrict(ResolvedRequest(constraints), request).constraints

    def waits(self) -> Waits:
        """Why requests are queued now."""
        return Waits(self.state)

    @property
    def last_event_at(self) -> float:
        """The time of the last change of any endpoint."""
        return self.state.last_event_at

    def sends_slowly(self, tenant: str, now: float) -> bool:
        """Whether a tenant's uploads wasted too many slot-seconds lately."""
        return self.state.uploads.is_suspect_tenant(tenant, now)


def sum_slots(counts: Collection[SlotCounts]) -> SlotCounts:
    """Those of several endpoints together."""
    return SlotCounts(
        total=sum(one.total for one in counts),
        leased=sum(one.leased for one in counts),
        draining=sum(one.draining for one in counts),
        foreign=sum(one.foreign for one in counts),
        idle=sum(one.idle for one in counts),
        unusable=sum(one.unusable for one in counts),
    )


def count_idle(endpoint: Endpoint, endpoint_slots: EndpointSlots) -> int:
    """The slots that are available to the next request."""
    return endpoint_slots.free_slots if endpoint.is_pickable else 0


def count_slots(endpoint: Endpoint, endpoint_slots: EndpointSlots) -> SlotCounts:
    """Count the slots of an endpoint. O(leases of this endpoint).

    A server that is down or loading works for nobody who left, and what the last scrape saw of
    others ended with it: only requests whose client still waits for it count as leased.
    """
    slots, leased = endpoint_slots.slots, endpoint_slots.leased_slots
    foreign, draining = endpoint_slots.foreign_slots, endpoint_slots.draining_slots
    if not endpoint.is_serving:
        leased, draining, foreign = leased - draining, 0, 0
    free = max(0, slots - leased - foreign)
    idle = count_idle(endpoint, endpoint_slots)
    return SlotCounts(
        total=slots,
        leased=leased,
        draining=draining,
        foreign=foreign,
        idle=idle,
        unusable=free - idle,
    )
