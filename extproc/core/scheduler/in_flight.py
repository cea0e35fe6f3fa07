"""What every open lease is for, and what its course teaches: use, promises, times.

Begins with a pick, hears of the answer, ends with the release. As large as there are leases.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from extproc.core.slots.adapter_use import AdapterUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extproc.core.address import Address
    from extproc.core.objective import Objective
    from extproc.core.prediction.generation_progress import GenerationProgress
    from extproc.core.prediction.prefix_cache import Segment
    from extproc.core.queue.fair_queueing import FairQueueing, Flow
    from extproc.core.queue.slo_attainment import SloAttainment
    from extproc.core.request import Request
    from extproc.core.slots.lease import Lease


class InFlightRequest:
    """One request on its way through a server."""

    __slots__ = (
        "answered_at",
        "asked_at",
        "cached_tokens",
        "charged_s",
        "ends_by",
        "first_token_at",
        "flow",
        "has_failed",
        "is_error",
        "is_header_timing_recorded",
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
        self, request: Request, objective: Objective, flow: Flow, asked_at: float, charged_s: float
    ) -> None:
        """What was expected when it was picked is told by `InFlight.begin`'s caller."""
        self.request = request
        self.objective = objective
        self.flow = flow
        self.asked_at = asked_at
        self.charged_s = charged_s
        self.answered_at: float | None = None
        self.cached_tokens = 0.0
        self.first_token_at: float | None = None
        """When its first token came, once that is known."""
        self.remembered: tuple[Segment, ...] = ()
        self.is_stream = self.is_error = False
        self.has_failed = False
        """Its server failed it: outlier detection was told."""
        self.progress: GenerationProgress | None = None
        """What looks showed of it, as far as they could be told to be of it."""
        self.ends_by = inf
        """When its slot is free at the latest, by the tokens that may still come."""
        self.is_valid_sample = False
        """Whether its prompt's length is known well enough to learn a server's speed from it, and
        no model had to be loaded first."""
        self.is_sampled = False
        """Its first token was learned from."""
        self.is_header_timing_recorded = False
        """Whether its headers came with its first token was learned from."""
        self.is_slo_recorded = False
        """Whether its objective's promise was kept is known."""

    @property
    def uncached_tokens(self) -> float:
        """The tokens of its prompt that were expected to be read, and not found in a cache."""
        return max(0.0, self.request.likely_tokens - self.cached_tokens)


class InFlight:
    """The runs by lease. Every call is O(1)."""

    def __init__(self, fairness: FairQueueing, slo_attainment: SloAttainment) -> None:
        self._fairness = fairness
        self._slo_attainment = slo_attainment
        self._runs: dict[int, InFlightRequest] = {}
        self.adapters = AdapterUse()

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, lease: Lease) -> InFlightRequest | None:
        return self._runs.get(lease.id)

    def begin(
        self,
        lease: Lease,
        request: Request,
        objective: Objective,
        asked_at: float,
        charged_s: float,
    ) -> InFlightRequest:
        """A request was given a lease. `asked_at` is when it came; it will use about `charged_s`
        slot-seconds."""
        flow = self._fairness.flow(objective, request.fairness_id, request.tenant)
        self._fairness.charge(flow, charged_s, has_waited=asked_at < lease.opened_at)
        run = self._runs[lease.id] = InFlightRequest(request, objective, flow, asked_at, charged_s)
        self.adapters.began(lease.address, request.adapters)
        queue_s = objective.queue_s
        if queue_s is not None and objective.ttft_s is None:
            self.record_slo(run, lease, True, lease.opened_at)
        return run

    def answered(self, lease: Lease, now: float) -> InFlightRequest | None:
        """The answer's headers came; returns the run, the first time only."""
        run = self._runs.get(lease.id)
        if run is None or run.answered_at is not None:
            return None
        run.answered_at = now
        return run

    def end(self, lease: Lease, now: float) -> InFlightRequest | None:
        """The lease was released; returns its run."""
        run = self._runs.pop(lease.id, None)
        if run is None:
            return None
        self.adapters.ended(lease.address, run.request.adapters)
        used_s = (now - lease.opened_at) * lease.weight_slots
        self._fairness.settle(run.flow, run.charged_s, used_s)
        return run

    def moved(self, lease: Lease, picked: Address) -> InFlightRequest | None:
        """Another endpoint than the picked one serves it; returns the run, of which no look at
        the picked one tells anything."""
        run = self._runs.get(lease.id)
        if run is not None:
            self.adapters.ended(picked, run.request.adapters)
            self.adapters.began(lease.address, run.request.adapters)
            run.progress, run.ends_by = None, inf
        return run

    def faults(self, open_ids: set[int]) -> list[str]:
        """Runs without an open lease. O(runs)."""
        return [f"a run of lease {id_}, which is not open" for id_ in self._runs.keys() - open_ids]

    def rebuild(self, leases: Iterable[Lease]) -> None:
        """Keep the runs of these leases, and count anew by flow and by adapters. O(runs)."""
        by_id = {lease.id: lease for lease in leases}
        self._runs = {id_: run for id_, run in self._runs.items() if id_ in by_id}
        self.adapters.clear()
        self._fairness.recount_running(run.flow for run in self._runs.values())
        for id_, run in self._runs.items():
            self.adapters.began(by_id[id_].address, run.request.adapters)

    def rejected(self, objective: Objective, now: float) -> None:
        """A request was refused for want of room: whatever it was promised was not kept."""
        if objective.has_slo:
            self._slo_attainment.record(objective.name, was_met=False, now=now)

    def record_slo(self, run: InFlightRequest, lease: Lease, was_in_time: bool, now: float) -> None:
        """Whether its first token came in time is known; only the first word on it counts."""
        if run.is_slo_recorded:
            return
        run.is_slo_recorded = True
        queue_s = run.objective.queue_s
        was_met = was_in_time and (queue_s is None or lease.opened_at - run.asked_at <= queue_s)
        self._slo_attainment.record(run.objective.name, was_met, now)
