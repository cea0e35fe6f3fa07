"""All state of the core: the fleet, leases, the queue, and what was learned."""

from collections.abc import Mapping
from random import Random

from extproc.core.bounds import Bounds
from extproc.core.constraints import NO_POOL, UNRESOLVED, Constraints, qualified
from extproc.core.conversations import Conversations
from extproc.core.events import Outbox
from extproc.core.fleet.catalog import ContextSizes
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.fleet.subset_hints import SubsetHints
from extproc.core.learner import Learner
from extproc.core.learning.attribution import Attribution
from extproc.core.learning.feedback import Feedback
from extproc.core.learning.in_flight import InFlight
from extproc.core.learning.learned import LearnedState
from extproc.core.learning.request_sizes import RequestSizes
from extproc.core.learning.slo import SloEvaluation
from extproc.core.learning.traffic_counter import TrafficCounter
from extproc.core.objective import Criticality
from extproc.core.options import DispatcherOptions
from extproc.core.outliers.outlier_detection import OutlierDetection
from extproc.core.outliers.pauses import Pauses
from extproc.core.outliers.poison_requests import PoisonGuard
from extproc.core.placement.model_load import ModelLoad
from extproc.core.prediction.answer_lengths import AnswerLengths
from extproc.core.prediction.latency import LatencyModel
from extproc.core.prediction.prefix_cache import PrefixIndex
from extproc.core.prediction.prompt_sizes import PromptSizes
from extproc.core.prediction.sessions import Sessions
from extproc.core.queue.affinity_wait import AffinityWaits
from extproc.core.queue.drain_rate import DrainRate
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.queue.ticket import UNKNOWN_SIZE, ExpectedSize
from extproc.core.rejection import Reason
from extproc.core.request import Request, ResolvedRequest, client_of
from extproc.core.request_groups import Groups, RequestGroups
from extproc.core.scaling.traffic import Traffic
from extproc.core.selection.context_fit import NeededContexts
from extproc.core.selection.cost import CostModel
from extproc.core.selection.endpoint_picker import EndpointPicker
from extproc.core.selection.ranking_cache import RankingCache
from extproc.core.selection.rules import Rules
from extproc.core.selection.usage_share import UsageShare
from extproc.core.slots.ledger import Ledger
from extproc.core.slots.model_loading import ModelLoadTracker
from extproc.core.slots.token_demand import TokenDemands
from extproc.core.slots.uploads import Uploads


class State:
    """Live state. `core/scheduler` changes it and `core/views` reads it; each part that learns has
    only what it is given here."""

    def __init__(self, random: Random, options: DispatcherOptions) -> None:
        self.random = random
        self.options = options
        """Those of the ledger, outliers, aging and the order apply as they are at the start."""
        self.last_event_at = 0.0
        """The time of the last change of any endpoint."""
        self.outbox = Outbox()
        self.loads: Mapping[str, ModelLoad] = {}
        """What requests wait for, by all names of the models that keepers could load, each with its
        pool before it where pools are configured."""
        self.wakes: Mapping[str, ModelLoad] = {}
        """The machines that requests wait for, by all names of the models that they will serve, in
        the same way."""
        self.can_wake_keepers = False
        """Whether a machine with a keeper is off, and woken for requests."""
        self.failed_models: Mapping[str, str] = {}
        """Why models cannot be loaded anywhere, by all of their names in the same way; without one
        if none can be."""
        self.bounds = Bounds(options.bounds)
        self.groups = RequestGroups(options.client_limits)
        self.rules: Rules | None = None
        """The operators' own; None without any."""
        self.spilled = 0
        """The requests that were sent to a higher tier since the start."""
        self.spill_left: int | None = None
        """How many further ones may be, None without a limit."""
        self.spill_closed = ""
        """Why none may be, as text for operators."""

        # The fleet and its slots
        self.fleet = Fleet()
        self.resolver = RequestResolver(self.fleet, options.resolver, random)
        self.contexts = ContextSizes()
        self.subset_hints = SubsetHints(self.fleet)
        self.ledger = Ledger(options.draining_caps)
        self.model_loads = ModelLoadTracker()
        self.uploads = Uploads()
        self.conversations = Conversations()
        self.outliers = OutlierDetection(self.fleet, options.outliers, self.outbox.ejection_changed)
        self.pauses = Pauses()
        self.poison = PoisonGuard()

        # The queue
        self.fairness = FairQueueing()
        self.slo_attainment = SloAttainment()
        self.queue = RequestQueue(self.fairness, options.order)
        self.affinity_waits = AffinityWaits(self.queue)
        self.drain_rate = DrainRate()

        # What was learned
        names = self.resolver.names
        self.latency = LatencyModel()
        self.prefix_caches = PrefixIndex()
        self.sessions = Sessions()
        self.prompt_sizes = PromptSizes()
        self.answer_lengths = AnswerLengths()
        self.usage_share = UsageShare()
        self.use_by_criticality = {criticality: UsageShare() for criticality in Criticality}
        self.traffic = Traffic()
        self.in_flight = InFlight(self.fairness, self.slo_attainment)
        self.needed_contexts = NeededContexts(
            self.fleet, self.resolver, self.contexts, self.prompt_sizes
        )
        self.demands = TokenDemands(self.answer_lengths, self.prompt_sizes)
        self.costs = CostModel(
            self.latency,
            self.prefix_caches,
            self.sessions,
            self.in_flight.adapters,
            counts_stalls=options.order.is_by_size,
        )

        # What learns
        self.slo = SloEvaluation(self.latency, self.in_flight)
        self.attribution = Attribution(self.ledger, self.in_flight, self.outliers, self.poison)
        self.traffic_counter = TrafficCounter(self.fleet, names, self.traffic)
        self.feedback = Feedback(
            *(self.fleet, names, self.ledger, self.in_flight, self.slo, self.latency),
            *(self.prefix_caches, self.sessions, self.prompt_sizes, self.costs, self.model_loads),
        )
        self.sizes: RequestSizes | None = None
        if options.order.is_by_size:
            self.sizes = RequestSizes(
                self.fleet, self.ledger, self.in_flight, self.latency, self.costs
            )
        self.learned = LearnedState(
            self.latency,
            self.prefix_caches,
            self.sessions,
            self.answer_lengths,
            self.model_loads,
        )
        self.learners: tuple[Learner, ...] = (
            self.conversations,
            self.outliers,
            self.pauses,
            self.contexts,
            self.poison,
            self.latency,
            self.prefix_caches,
            self.sessions,
            self.usage_share,
            *self.use_by_criticality.values(),
            self.in_flight,
            self.feedback,
        )
        """All that knows something of endpoints, in the order in which they hear of them."""

        # Where a request goes
        self.rankings = RankingCache(self.fleet, self.ledger, self.model_loads, random)
        self.endpoint_picker = EndpointPicker(
            self.fleet,
            self.ledger,
            self.rankings,
            self.costs,
            self.latency,
            self.prefix_caches,
            self.sessions,
            self.usage_share,
            self.affinity_waits.waiting_at,
            self.demands,
            self.model_loads,
        )

    def load_of(self, model: str | None, pool: str = NO_POOL) -> ModelLoad | None:
        """The load, or the machine that wakes, for which requests for a model wait. O(1)."""
        name = qualified(pool, model or "")
        load, wake = self.loads.get(name), self.wakes.get(name)
        return load if wake is None or (load is not None and load.ready_at is not None) else wake

    def set_rules(self, rules: Rules | None) -> None:
        """Use these rules; queued requests are asked about again by the caller."""
        self.rules = self.endpoint_picker.rules = rules

    def under_bounds(self, resolved: ResolvedRequest, request: Request) -> ResolvedRequest:
        """The resolved request with the bounds that it is under now. O(bounds of models)."""
        canonical = self.resolver.names.catalog.canonical_name
        names = (resolved.model, request.model)
        bounds = self.bounds.of(
            resolved.objective.name, names, request.path, canonical, request.pool
        )
        return resolved._replace(bounds=bounds) if bounds else resolved

    def groups_of(self, request: Request) -> Groups:
        """The session and the flow of a request, if these have a limit."""
        tenant = request.tenant
        return self.groups.of(client_of(tenant), tenant, request.session_id, request.fairness_id)

    def excluded_note(self, resolved: ResolvedRequest, request: Request) -> str:
        """Which rules leave the request no endpoint of those that could serve it, as a sentence;
        empty if they leave one. O(endpoints)."""
        constraints = resolved.constraints
        if self.rules is None or constraints.by_rules is None:
            return ""
        others = constraints._replace(by_rules=None)
        could = [one for one in self.fleet if one.is_usable and is_eligible(others, one)]
        if any(one.address in constraints.by_rules for one in could):
            return ""
        return self.rules.why_nowhere(request, could)

    def resolve(self, request: Request, random: Random | None = None) -> ResolvedRequest | Reason:
        """What the request means and needs, or why nothing can ever serve it. A dry run passes its
        own `random`."""
        resolved = self.resolver.of_pool(request.pool).resolve(request, random)
        if isinstance(resolved, Reason):
            return resolved
        if self.rules is not None:
            resolved = self.restrict(resolved, request)
        if not self.bounds.is_empty:
            resolved = self.under_bounds(resolved, request)
        if not self.groups.is_empty:
            resolved = resolved._replace(groups=self.groups_of(request))
        return resolved if request.prompt_tokens is None else self.fit_context(resolved, request)

    def size_of(self, resolved: ResolvedRequest, request: Request, now: float) -> ExpectedSize:
        """What the order of the queue needs to know of a request that finds no free slot."""
        if self.sizes is not None:
            return self.sizes.expected(resolved, request, now)
        if self.queue.order.is_started_first:
            return 0.0, 0 if self.has_started(request) else 1
        return UNKNOWN_SIZE

    def has_started(self, request: Request) -> bool:
        """Whether a request of its session was served before; without an id of a session, whether
        one was that began with more than half of what is read of its prompt. O(log blocks)."""
        if request.session_id is not None:
            return self.sessions.last_endpoint(request.session_id) is not None
        blocks = request.prompt_blocks
        return 2 * self.prefix_caches.depth(blocks) > len(blocks)

    def restrict(self, resolved: ResolvedRequest, request: Request) -> ResolvedRequest:
        """The request with the endpoints that the rules leave it. O(filters x endpoints)."""
        rules = self.rules
        if rules is None or not rules.has_filters or resolved.constraints == UNRESOLVED:
            return resolved
        allowed = rules.allowed(request, self.fleet)
        if allowed is None:
            return resolved
        return resolved._replace(constraints=resolved.constraints._replace(by_rules=allowed))

    def fit_context(self, resolved: ResolvedRequest, request: Request) -> ResolvedRequest | Reason:
        """The request with the context that it needs, or why it is rejected."""
        return self.needed_contexts.apply(resolved, request, self.options.context_fit)

    def why_failed(self, constraints: Constraints) -> str:
        """Why no server for these can be started any more; empty if one may be. O(1)."""
        if not self.failed_models or constraints == UNRESOLVED:
            return ""
        return self.failed_models.get(qualified(constraints.pool, constraints.model or ""), "")
