"""What every open lease is for, and what its course teaches: use, promises, times.

Begins with a pick, hears of the answer, ends with the release. As large as there are leases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from extproc.core.lease import LeaseEnd

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.attainment import Promises
    from extproc.core.course import Course
    from extproc.core.fairness import Fairness, Flow
    from extproc.core.lease import Lease
    from extproc.core.objective import Objective
    from extproc.core.prefix import Segment
    from extproc.core.request import Request


class Run:
    """One request on its way through a server."""

    __slots__ = (
        "answered_at",
        "asked_at",
        "cached_tokens",
        "charged_s",
        "course",
        "expected_first_s",
        "flow",
        "has_taught",
        "is_error",
        "is_stream",
        "objective",
        "remembered",
        "request",
        "was_judged",
    )

    def __init__(
        self, request: Request, objective: Objective, flow: Flow, asked_at: float, charged_s: float
    ) -> None:
        """What was expected when it was picked is told by `Running.begin`'s caller."""
        self.request = request
        self.objective = objective
        self.flow = flow
        self.asked_at = asked_at
        self.charged_s = charged_s
        self.answered_at: float | None = None
        self.cached_tokens = 0.0
        self.expected_first_s = 0.0
        self.remembered: tuple[Segment, ...] = ()
        self.is_stream = self.is_error = False
        self.course: Course | None = None
        """What looks showed of it, as far as they could be told to be of it."""
        self.has_taught = False
        """Its first token was learned from."""
        self.was_judged = False
        """Whether its headers came with its first token was learned from."""


class Running:
    """The runs by lease. Every call is O(1)."""

    def __init__(self, fairness: Fairness, promises: Promises) -> None:
        self._fairness = fairness
        self._promises = promises
        self._runs: dict[int, Run] = {}
        self._adapters: dict[Address, dict[str | None, int]] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def get(self, lease: Lease) -> Run | None:
        return self._runs.get(lease.id)

    def begin(
        self,
        lease: Lease,
        request: Request,
        objective: Objective,
        asked_at: float,
        charged_s: float,
    ) -> Run:
        """A request was given a lease. `asked_at` is when it came; it will use about `charged_s`
        slot-seconds."""
        flow = self._fairness.flow(objective, request.fairness_id)
        self._fairness.charge(flow, charged_s, has_waited=asked_at < lease.opened_at)
        run = self._runs[lease.id] = Run(request, objective, flow, asked_at, charged_s)
        self._count_adapter(lease.address, request.adapter, +1)
        queue_s = objective.queue_s
        if queue_s is not None and objective.ttft_s is None:
            was_met = lease.opened_at - asked_at <= queue_s
            self._promises.judged(objective.name, was_met, now=lease.opened_at)
        return run

    def answered(self, lease: Lease, now: float) -> Run | None:
        """The answer's headers came; returns the run, the first time only."""
        run = self._runs.get(lease.id)
        if run is None or run.answered_at is not None:
            return None
        run.answered_at = now
        if run.objective.ttft_s is not None:
            self._judge(run, lease, now - run.asked_at)
        return run

    def end(self, lease: Lease, end: LeaseEnd, now: float) -> Run | None:
        """The lease was released; returns its run."""
        run = self._runs.pop(lease.id, None)
        if run is None:
            return None
        self._count_adapter(lease.address, run.request.adapter, -1)
        used_s = (now - lease.opened_at) * lease.weight_slots
        self._fairness.settle(run.flow, run.charged_s, used_s)
        ttft_s = run.objective.ttft_s
        if run.answered_at is None and ttft_s is not None:
            is_late = now - run.asked_at > ttft_s
            if is_late or end is LeaseEnd.SERVED:  # a client that left early was promised nothing
                self._judge(run, lease, now - run.asked_at)
        return run

    def moved(self, lease: Lease, picked: Address) -> None:
        """Another endpoint than the picked one serves it."""
        run = self._runs.get(lease.id)
        if run is not None:
            self._count_adapter(picked, run.request.adapter, -1)
            self._count_adapter(lease.address, run.request.adapter, +1)

    def has_other_adapter(self, address: Address, adapter: str | None) -> bool:
        """Whether requests with another adapter than this one run there."""
        running = self._adapters.get(address)
        return running is not None and (len(running) > 1 or adapter not in running)

    def _count_adapter(self, address: Address, adapter: str | None, by: int) -> None:
        running = self._adapters.get(address)
        if running is None:
            running = self._adapters[address] = {}
        count = running.get(adapter, 0) + by
        if count:
            running[adapter] = count
            return
        del running[adapter]
        if not running:
            del self._adapters[address]

    def refused(self, objective: Objective, now: float) -> None:
        """A request was refused for want of room: whatever it was promised was not kept."""
        if objective.has_promise:
            self._promises.judged(objective.name, was_met=False, now=now)

    def _judge(self, run: Run, lease: Lease, ttft_s: float) -> None:
        objective = run.objective
        was_met = objective.ttft_s is None or ttft_s <= objective.ttft_s
        if objective.queue_s is not None:
            was_met = was_met and lease.opened_at - run.asked_at <= objective.queue_s
        self._promises.judged(objective.name, was_met, now=run.asked_at + ttft_s)
