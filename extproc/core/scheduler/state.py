"""All that the core knows, in one place: who is there, what runs, who waits, what was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.resolver import RequestResolver, ResolverOptions
from extproc.core.fleet.subset_hints import SubsetHints
from extproc.core.outliers.outlier_detection import OutlierDetection, OutlierOptions
from extproc.core.outliers.poison_requests import PoisonGuard
from extproc.core.prediction.latency import LatencyModel
from extproc.core.prediction.prefix_cache import PrefixIndex
from extproc.core.prediction.sessions import Sessions
from extproc.core.queue.affinity_wait import AffinityWaits
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.scheduler.in_flight import InFlight
from extproc.core.selection.cost import CostModel
from extproc.core.selection.endpoint_picker import EndpointPicker
from extproc.core.selection.ranking_cache import RankingCache
from extproc.core.selection.usage_share import UsageShare
from extproc.core.slots.ledger import DrainingCaps, Ledger
from extproc.core.slots.model_loading import ModelLoadTracker
from extproc.core.slots.uploads import Uploads

if TYPE_CHECKING:
    from random import Random

    from extproc.core.scheduler.events import Outbox


class State:
    """Live state, read by many; only the dispatcher and its desk change it."""

    def __init__(
        self,
        random: Random,
        caps: DrainingCaps,
        intake: ResolverOptions,
        outliers: OutlierOptions,
        outbox: Outbox,
    ) -> None:
        self.fleet = Fleet()
        self.outliers = OutlierDetection(self.fleet, outliers, outbox)
        self.poison = PoisonGuard()
        self.ledger = Ledger(caps)
        self.loads = ModelLoadTracker()
        self.intake = RequestResolver(self.fleet, intake, random)
        self.views = RankingCache(self.fleet, self.ledger, self.loads, random)
        self.fairness = FairQueueing()
        self.promises = SloAttainment()
        self.line = RequestQueue(self.fairness)
        self.running = InFlight(self.fairness, self.promises)
        self.homing = AffinityWaits(self.line)
        self.timing = LatencyModel()
        self.prefixes = PrefixIndex()
        self.sessions = Sessions()
        self.spread = UsageShare()
        self.uploads = Uploads()
        self.subsets = SubsetHints(self.fleet)
        self.scorer = CostModel(self.timing, self.prefixes, self.sessions, self.running.adapters)
        self.chooser = EndpointPicker(
            self.fleet,
            self.ledger,
            self.views,
            self.scorer,
            self.timing,
            self.prefixes,
            self.sessions,
            self.spread,
            self.homing.waiting_at,
        )
