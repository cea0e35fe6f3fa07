"""Which requests may leave the first tier of endpoints, and after what wait."""

from collections.abc import Set
from dataclasses import dataclass

from extproc.core.objective import Objective
from extproc.core.request import client_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillOptions:
    """Requests of these `objectives`, and of clients with these `keys`, may spill; where both are
    given, both must hold. Nothing else ever does, so without any of them nothing spills.

    One spills if it is expected to wait for longer than `after_wait_s`, or, where its objective has
    an SLO and `slo_share` is given, than this share of it. At most `max_running` run in other
    tiers at once.
    """

    objectives: Set[str] = frozenset()
    keys: Set[str] = frozenset()
    after_wait_s: float = 10.0
    slo_share: float | None = None
    max_running: int = 8

    def permits(self, objective: Objective, tenant: str) -> bool:
        """Whether a request of that objective and tenant may spill."""
        if not self.objectives and not self.keys:
            return False
        if self.objectives and objective.name not in self.objectives:
            return False
        return client_of(tenant) in self.keys or not self.keys

    def longest_wait_s(self, objective: Objective) -> float:
        """The expected wait, in seconds, beyond which its requests spill."""
        slo_s = objective.ttft_s if objective.queue_s is None else objective.queue_s
        if self.slo_share is None or slo_s is None:
            return self.after_wait_s
        return self.slo_share * slo_s


NO_SPILL = SpillOptions()
