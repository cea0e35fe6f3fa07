"""All that the core knows, in one place: who is there, what runs, who waits, what was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.attainment import Promises
from extproc.core.fairness import Fairness
from extproc.core.fleet import Fleet
from extproc.core.homing import Homing
from extproc.core.intake import Intake, IntakeOptions
from extproc.core.ledger import DrainingCaps, Ledger
from extproc.core.loads import Loads
from extproc.core.outlier_detection import OutlierDetection, OutlierOptions
from extproc.core.poison import PoisonGuard
from extproc.core.prefix import PrefixIndex
from extproc.core.queue import Line
from extproc.core.running import Running
from extproc.core.scorer import Scorer
from extproc.core.sessions import Sessions
from extproc.core.spread import Spread
from extproc.core.subsets import Subsets
from extproc.core.timing import Timing
from extproc.core.uploads import Uploads
from extproc.core.views import Views

if TYPE_CHECKING:
    from random import Random

    from extproc.core.events import Outbox


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
        self.scorer = Scorer(self.timing, self.prefixes, self.sessions, self.running)
