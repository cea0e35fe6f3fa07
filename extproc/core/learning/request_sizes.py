"""The expected size of a request, in slot-seconds, before it starts.

    slots * (first token, with the tokens that are not cached + expected tokens * time of a token)

Speeds are those of the fleet's typical endpoint while as many slots are busy as now: the endpoint
that will serve the request is not known while it is queued. Only `queue.discipline:
shortest_expected` uses sizes; without it nothing is learned.
"""

from math import floor, log
from typing import Final

from extproc.core.fleet.membership import Fleet
from extproc.core.learning.in_flight import InFlight, InFlightRequest
from extproc.core.prediction.answer_sizes import AnswerSizes
from extproc.core.prediction.latency import LatencyModel
from extproc.core.prediction.size_features import SizeFeatures, features_of
from extproc.core.prediction.statistics import DecayingHistogram, DecayingMean
from extproc.core.queue.ticket import UNKNOWN_SIZE, ExpectedSize
from extproc.core.request import Request, ResolvedRequest
from extproc.core.selection.cost import CostModel
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.ledger import Ledger

LN_2: Final = log(2.0)
CLASSES_A_DOUBLING: Final = 1
"""Sizes of one class keep their order of arrival: a smaller difference is none for an estimate."""


class SizeClasses:
    """How sizes compare, and how many of each are queued. O(1) a call, but for `share_below`."""

    def __init__(self) -> None:
        self._usual = DecayingMean(decay=0.998, clip=8.0)
        self._queued = DecayingHistogram(decay=0.995)

    @property
    def usual_slot_s(self) -> float:
        """The mean slot-seconds of a request; 0 before any ended."""
        return self._usual.value(0.0)

    def share_below(self, size_class: int) -> float:
        """The share of lower classes in the slot-seconds of the recently queued requests."""
        return self._queued.share_below(size_class)

    def classify(self, slot_s: float) -> ExpectedSize:
        """The size of a request that is about to be queued."""
        usual_s = self.usual_slot_s
        if slot_s <= 0.0 or usual_s <= 0.0:
            return UNKNOWN_SIZE
        return slot_s, floor(CLASSES_A_DOUBLING / LN_2 * log(slot_s / usual_s) + 0.5)

    def queued(self, size: ExpectedSize) -> None:
        """A request of that size was queued."""
        slot_s, size_class = size
        self._queued.add(size_class, slot_s)

    def request_ended(self, used_slot_s: float) -> None:
        """A request ended that took its slots for that time."""
        self._usual.add(used_slot_s)


class RequestSizes:
    """Estimates sizes, and learns from those that requests had. O(1) a call, but for `AnswerSizes`
    and `classes.share_below`."""

    def __init__(
        self,
        fleet: Fleet,
        ledger: Ledger,
        in_flight: InFlight,
        latency: LatencyModel,
        costs: CostModel,
    ) -> None:
        self.classes = SizeClasses()
        self.answers = AnswerSizes()
        self._fleet = fleet
        self._ledger = ledger
        self._in_flight = in_flight
        self._latency = latency
        self._costs = costs

    def expected(self, resolved: ResolvedRequest, request: Request, now: float) -> ExpectedSize:
        """The size of a request that finds no free slot; unknown while too little was learned."""
        cached_tokens = self._costs.most_cached_tokens(request)
        uncached_tokens = max(0.0, request.likely_tokens - cached_tokens)
        features = features_of(request, resolved.constraints.model, resolved.objective.name)
        return self.classes.classify(self._slot_s(features, request, uncached_tokens, now))

    def _slot_s(
        self, features: SizeFeatures, request: Request, uncached_tokens: float, now: float
    ) -> float:
        tokens = self.answers.expected_tokens(features)
        if tokens is None:
            return 0.0
        estimate = self._latency.typical(now)
        busy_slots = max(1, floor(len(self._in_flight) / max(1, len(self._fleet)) + 0.5))
        answer_s = tokens * estimate.token_s(busy_slots)
        return request.weight_slots * (estimate.first_token_s(uncached_tokens) + answer_s)

    def learn(self, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float) -> None:
        """A request ended: learn from the time for which it held its slots. Errors and requests
        without a response show nothing, nor do those for which a model was loaded first."""
        if run.answered_at is None or run.is_error or run.is_cold or end is LeaseEnd.HANDED_OVER:
            return
        if not self.answers.wants_sample(now):
            return
        request = run.request
        held_s = now - lease.opened_at
        features = features_of(request, lease.model, run.objective.name)
        expected_s = run.expected_slot_s
        if not expected_s:  # it was not queued
            expected_s = self._slot_s(features, request, run.uncached_tokens, now)
        used_s = held_s * lease.weight_slots
        self.answers.record_error(features.model, expected_s, used_s)
        estimate = self._latency.estimate(lease.address, now)
        pool = self._ledger.endpoint_slots(lease.address)
        busy_slots = max(1, pool.slots - pool.free_slots)
        answer_s = held_s - estimate.first_token_s(run.uncached_tokens)
        self.answers.learn(features, max(0.0, answer_s) / max(1e-6, estimate.token_s(busy_slots)))
        self.classes.request_ended(used_s)
