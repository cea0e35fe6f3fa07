"""All that the core knows, in one place: who is there, what runs, who waits, what was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.resolver import Intake, IntakeOptions
from extproc.core.fleet.subset_hints import Subsets
from extproc.core.outliers.outlier_detection import OutlierDetection, OutlierOptions
from extproc.core.outliers.poison_requests import PoisonGuard
from extproc.core.prediction.latency import Timing
from extproc.core.prediction.prefix_cache import PrefixIndex
from extproc.core.prediction.sessions import Sessions
from extproc.core.queue.affinity_wait import Homing
from extproc.core.queue.fair_queueing import Fairness
from extproc.core.queue.request_queue import Line
from extproc.core.queue.slo_attainment import Promises
from extproc.core.scheduler.in_flight import Running
from extproc.core.selection.cost import Scorer
from extproc.core.selection.endpoint_picker import Chooser
from extproc.core.selection.ranking_cache import Views
from extproc.core.selection.usage_share import Spread
from extproc.core.slots.ledger import DrainingCaps, Ledger
from extproc.core.slots.model_loading import Loads
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
        intake: IntakeOptions,
        outliers: OutlierOptions,
        outbox: Outbox,
    ) -> None:
        self.fleet = Fleet()
        self.outliers = OutlierDetection(self.fleet, outliers, outbox)
        self.poison = PoisonGuard()
        self.ledger = Ledger(caps)
        self.loads = Loads()
        self.intake = Intake(self.fleet, intake, random)
        self.views = Views(self.fleet, self.ledger, self.loads, random)
        self.fairness = Fairness()
        self.promises = Promises()
        self.line = Line(self.fairness)
        self.running = Running(self.fairness, self.promises)
        self.homing = Homing(self.line)
        self.timing = Timing()
        self.prefixes = PrefixIndex()
        self.sessions = Sessions()
        self.spread = Spread()
        self.uploads = Uploads()
        self.subsets = Subsets(self.fleet)
        self.scorer = Scorer(self.timing, self.prefixes, self.sessions, self.running.adapters)
        self.chooser = Chooser(
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
