"""All state of the core: the fleet, leases, the queue, and what was learned."""

from collections.abc import Mapping
from random import Random

from extproc.core.constraints import UNRESOLVED, Constraints
from extproc.core.conversations import Conversations
from extproc.core.fleet.catalog import ContextSizes
from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.fleet.subset_hints import SubsetHints
from extproc.core.objective import Criticality
from extproc.core.outliers.outlier_detection import OutlierDetection
from extproc.core.outliers.poison_requests import PoisonGuard
from extproc.core.placement.model_load import ModelLoad
from extproc.core.prediction.answer_lengths import AnswerLengths
from extproc.core.prediction.latency import LatencyModel
from extproc.core.prediction.prefix_cache import PrefixIndex
from extproc.core.prediction.prompt_sizes import PromptSizes
from extproc.core.prediction.sessions import Sessions
from extproc.core.queue.affinity_wait import AffinityWaits
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.scaling.traffic import Traffic
from extproc.core.scheduler.events import Outbox
from extproc.core.scheduler.in_flight import InFlight
from extproc.core.scheduler.options import DispatcherOptions
from extproc.core.scheduler.request_sizes import RequestSizes
from extproc.core.selection.cost import CostModel
from extproc.core.selection.endpoint_picker import EndpointPicker
from extproc.core.selection.ranking_cache import RankingCache
from extproc.core.selection.usage_share import UsageShare
from extproc.core.slots.ledger import Ledger
from extproc.core.slots.model_loading import ModelLoadTracker
from extproc.core.slots.token_demand import TokenDemands
from extproc.core.slots.uploads import Uploads


class State:
    """Live state; only the dispatcher and its slot allocator change it."""

    def __init__(self, random: Random, options: DispatcherOptions) -> None:
        self.random = random
        self.options = options
        """Those of the ledger, outliers, aging and the order apply as they are at the start."""
        self.outbox = Outbox()
        self.fleet = Fleet()
        self.outliers = OutlierDetection(self.fleet, options.outliers, self.outbox.ejection_changed)
        self.poison = PoisonGuard()
        self.ledger = Ledger(options.draining_caps)
        self.model_loads = ModelLoadTracker()
        self.resolver = RequestResolver(self.fleet, options.resolver, random)
        self.rankings = RankingCache(self.fleet, self.ledger, self.model_loads, random)
        self.fairness = FairQueueing()
        self.slo_attainment = SloAttainment()
        self.queue = RequestQueue(self.fairness, options.order)
        self.sizes = RequestSizes() if options.order.is_by_size else None
        self.in_flight = InFlight(self.fairness, self.slo_attainment)
        self.affinity_waits = AffinityWaits(self.queue)
        self.latency = LatencyModel()
        self.prefix_caches = PrefixIndex()
        self.sessions = Sessions()
        self.usage_share = UsageShare()
        self.use_by_criticality = {criticality: UsageShare() for criticality in Criticality}
        self.uploads = Uploads()
        self.traffic = Traffic()
        self.contexts = ContextSizes()
        self.prompt_sizes = PromptSizes()
        self.answer_lengths = AnswerLengths()
        self.demands = TokenDemands(self.answer_lengths, self.prompt_sizes)
        self.subset_hints = SubsetHints(self.fleet)
        self.conversations = Conversations()
        self.loads: Mapping[str, ModelLoad] = {}
        """What requests wait for, by all names of the models that keepers could load."""
        self.failed_models: Mapping[str, str] = {}
        """Why models cannot be loaded anywhere, by all of their names; `""` if none can be."""
        self.costs = CostModel(
            self.latency,
            self.prefix_caches,
            self.sessions,
            self.in_flight.adapters,
            counts_stalls=options.order.is_by_size,
        )
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
        )

    def why_failed(self, constraints: Constraints) -> str:
        """Why no server for these can be started any more; empty if one may be. O(1)."""
        if not self.failed_models or constraints == UNRESOLVED:
            return ""
        return self.failed_models.get(constraints.model or "", "")
