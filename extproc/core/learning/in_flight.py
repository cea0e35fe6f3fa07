"""The requests with open leases: their use of slots, SLO results and times.

An entry begins with a pick and ends with the release. There are as many as open leases.
"""

from collections.abc import Iterable
from math import inf

from extproc.core.address import Address
from extproc.core.learner import Learner
from extproc.core.objective import Objective
from extproc.core.prediction.generation_progress import GenerationProgress
from extproc.core.prediction.prefix_cache import Segment
from extproc.core.queue.fair_queueing import FairQueueing, Flow
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.request import Request
from extproc.core.selection.cost import AdapterUse
from extproc.core.slots.lease import Lease


class InFlightRequest:
    """One request that has a lease."""

    __slots__ = (
        "answered_at",
        "arrived_at",
        "cached_tokens",
        "charged_s",
        "ends_by",
        "expected_slot_s",
        "first_token_at",
        "flow",
        "has_failed",
        "is_cold",
        "is_error",
        "is_header_timing_recorded",
        "is_prompt_sized",
        "is_sampled",
        "is_slo_recorded",
        "is_stream",
        "is_valid_sample",
        "objective",
        "progress",
        "remembered",
        "request",
    )

    def __init__(
        self,
        request: Request,
        objective: Objective,
        flow: Flow,
        arrived_at: float,
        charged_s: float,
    ) -> None:
        """The caller of `InFlight.begin` adds the predictions."""
        self.request = request
        self.objective = objective
        self.flow = flow
        self.arrived_at = arrived_at
        self.charged_s = charged_s
        self.answered_at: float | None = None
        self.cached_tokens = 0.0
        self.first_token_at: float | None = None
        """The time of its first token, once that is known."""
        self.remembered: tuple[Segment, ...] = ()
        self.is_stream = self.is_error = False
        self.has_failed = False
        """Its server failed it, and outlier detection knows."""
        self.progress: GenerationProgress | None = None
        """What scrapes showed of it, if its task could be identified."""
        self.ends_by = inf
        """The latest time at which its slot is free, by the tokens that may still come."""
        self.expected_slot_s = 0.0
        """The slot-seconds that were expected while it was queued; 0 if they were not."""
        self.is_cold = False
        """Whether its model had to be loaded first."""
        self.is_valid_sample = False
        """Whether its prompt length is known well enough to learn a server's speed from it, and no
        model had to be loaded first."""
        self.is_sampled = False
        """Whether its time to first token was recorded."""
        self.is_prompt_sized = False
        """Whether the real length of its prompt was recorded."""
        self.is_header_timing_recorded = False
        """Whether it was recorded that its headers came with, or before, its first token."""
        self.is_slo_recorded = False
        """Whether it was recorded if its objective's SLO was met."""

    @property
    def uncached_tokens(self) -> float:
        """The tokens of its prompt that were expected not to be in a cache."""
        return max(0.0, self.request.likely_tokens - self.cached_tokens)


class InFlight(Learner):
    """The in-flight requests by lease. Every call is O(1)."""

    def __init__(self, fairness: FairQueueing, slo_attainment: SloAttainment) -> None:
        self._fairness = fairness
        self._slo_attainment = slo_attainment
        self._runs: dict[int, InFlightRequest] = {}
        self.adapters = AdapterUse()

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, lease: Lease) -> InFlightRequest | None:
        return self._runs.get(lease.id)

    def by_id(self, lease_id: int) -> InFlightRequest | None:
        return self._runs.get(lease_id)

    def begin(
        self,
        lease: Lease,
        request: Request,
        objective: Objective,
        arrived_at: float,
        charged_s: float,
    ) -> InFlightRequest:
        """A request got a lease. `arrived_at` is its arrival; it will use about `charged_s`
        slot-seconds."""
        flow = self._fairness.flow(objective, request.fairness_id, request.tenant)
        self._fairness.charge(flow, charged_s, has_waited=arrived_at < lease.opened_at)
        run = self._runs[lease.id] = InFlightRequest(
            request, objective, flow, arrived_at, charged_s
        )
        self.adapters.request_began(lease.address, request.adapters)
        queue_s = objective.queue_s
        if queue_s is not None and objective.ttft_s is None:
            self.record_slo(run, lease, True, lease.opened_at)
        return run

    def answered(self, lease: Lease, now: float) -> InFlightRequest | None:
        """The response headers came; returns the request, on the first call only."""
        run = self._runs.get(lease.id)
        if run is None or run.answered_at is not None:
            return None
        run.answered_at = now
        return run

    def end(self, lease: Lease, now: float) -> InFlightRequest | None:
        """The lease was released; returns its request."""
        run = self._runs.pop(lease.id, None)
        if run is None:
            return None
        self.adapters.request_ended(lease.address, run.request.adapters)
        used_s = (now - lease.opened_at) * lease.weight_slots
        self._fairness.settle(run.flow, run.charged_s, used_s)
        return run

    def moved(self, lease_id: int, picked: Address, served: Address, _now: float) -> None:
        """Another endpoint than the picked one serves it. Scrapes of the picked one no longer apply
        to it."""
        run = self._runs.get(lease_id)
        if run is not None:
            self.adapters.request_ended(picked, run.request.adapters)
            self.adapters.request_began(served, run.request.adapters)
            run.progress, run.ends_by = None, inf

    def faults(self, open_ids: set[int]) -> list[str]:
        """In-flight requests without an open lease. O(requests)."""
        return [f"a run of lease {id_}, which is not open" for id_ in self._runs.keys() - open_ids]

    def rebuild(self, leases: Iterable[Lease]) -> None:
        """Keep the requests of these leases, and recount by flow and by adapters. O(requests)."""
        by_id = {lease.id: lease for lease in leases}
        self._runs = {id_: run for id_, run in self._runs.items() if id_ in by_id}
        self.adapters.clear()
        self._fairness.recount_running(run.flow for run in self._runs.values())
        for id_, run in self._runs.items():
            self.adapters.request_began(by_id[id_].address, run.request.adapters)

    def rejected(self, objective: Objective, now: float) -> None:
        """A request was rejected because no slot was free: an SLO of its objective is missed."""
        if objective.has_slo:
            self._slo_attainment.record(objective.name, was_met=False, now=now)

    def record_slo(self, run: InFlightRequest, lease: Lease, was_in_time: bool, now: float) -> None:
        """Record whether the first token came in time; only the first call counts."""
        if run.is_slo_recorded:
            return
        run.is_slo_recorded = True
        queue_s = run.objective.queue_s
        was_met = was_in_time and (queue_s is None or lease.opened_at - run.arrived_at <= queue_s)
        self._slo_attainment.record(run.objective.name, was_met, now)
