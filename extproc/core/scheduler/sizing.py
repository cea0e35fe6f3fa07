"""The expected size of a request, in slot-seconds, before it starts.

    slots * (first token, with the tokens that are not cached + expected tokens * time of a token)

Speeds are those of the fleet's typical endpoint while as many slots are busy as now: the endpoint
that will serve the request is not known while it is queued. Only `queue.discipline:
shortest_expected` uses sizes; without it nothing is learned.
"""

from math import floor

from extproc.core.prediction.size_features import SizeFeatures, features_of
from extproc.core.queue.ticket import ExpectedSize
from extproc.core.request import Request, ResolvedRequest
from extproc.core.scheduler.in_flight import InFlightRequest
from extproc.core.scheduler.request_sizes import RequestSizes
from extproc.core.scheduler.state import State
from extproc.core.slots.lease import Lease, LeaseEnd


def expected_size(
    state: State, sizes: RequestSizes, resolved: ResolvedRequest, request: Request, now: float
) -> ExpectedSize:
    """The size of a request that finds no free slot; unknown while too little was learned."""
    cached_tokens = state.costs.most_cached_tokens(request)
    uncached_tokens = max(0.0, request.likely_tokens - cached_tokens)
    features = features_of(request, resolved.constraints.model, resolved.objective.name)
    return sizes.classify(_slot_s(state, sizes, features, request, uncached_tokens, now))


def _slot_s(
    state: State,
    sizes: RequestSizes,
    features: SizeFeatures,
    request: Request,
    uncached_tokens: float,
    now: float,
) -> float:
    tokens = sizes.answers.expected_tokens(features)
    if tokens is None:
        return 0.0
    estimate = state.latency.typical(now)
    busy_slots = max(1, floor(len(state.in_flight) / max(1, len(state.fleet)) + 0.5))
    answer_s = tokens * estimate.token_s(busy_slots)
    return request.weight_slots * (estimate.first_token_s(uncached_tokens) + answer_s)


def learn_size(
    state: State, sizes: RequestSizes, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float
) -> None:
    """A request ended: learn from the time for which it held its slots. Errors and requests without
    a response show nothing, nor do those for which a model was loaded first."""
    if run.answered_at is None or run.is_error or run.is_cold or end is LeaseEnd.HANDED_OVER:
        return
    if not sizes.answers.wants_sample(now):
        return
    request = run.request
    held_s = now - lease.opened_at
    features = features_of(request, lease.model, run.objective.name)
    expected_s = run.expected_slot_s
    if not expected_s:  # it was not queued
        expected_s = _slot_s(state, sizes, features, request, run.uncached_tokens, now)
    used_s = held_s * lease.weight_slots
    sizes.answers.record_error(features.model, expected_s, used_s)
    estimate = state.latency.estimate(lease.address, now)
    pool = state.ledger.endpoint_slots(lease.address)
    busy_slots = max(1, pool.slots - pool.free_slots)
    answer_s = held_s - estimate.first_token_s(run.uncached_tokens)
    sizes.answers.learn(features, max(0.0, answer_s) / max(1e-6, estimate.token_s(busy_slots)))
    sizes.ended(used_s)
