"""Shared contexts: which pools have one, what scrapes show of it, and what is learned from it.

A request of ours is recognised by its task (see `feedback`); the other busy slots are foreign.
If it is not certain which are, those with the most tokens are: what a request of ours holds counts
by its demand already.
"""

from collections.abc import Mapping
from math import inf

from extproc.core.address import Address
from extproc.core.fleet.endpoint import TOGETHER_S, Endpoint
from extproc.core.learning.in_flight import InFlightRequest
from extproc.core.observation import Observation, SlotReading
from extproc.core.prediction.latency import Task, task_of
from extproc.core.prediction.size_features import features_of
from extproc.core.request import Kind
from extproc.core.slots.draining_evidence import ARRIVAL_S
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.slots.model_pools import slot_pool
from extproc.core.slots.token_demand import TokenClaim
from extproc.core.slots.token_pool import TokenPool
from extproc.core.state import State

AS_ALLOWED = 0.9
"""An answer that had this share of its `max_tokens`, as far as is known, was cut off by them."""
Runs = Mapping[Task, tuple[Lease, InFlightRequest]]
"""The requests whose tasks are known."""
Pair = tuple[Lease, InFlightRequest, SlotReading]


def share_contexts(state: State, endpoint: Endpoint) -> None:
    """Give each pool of an endpoint the tokens that its slots share, if they do."""
    endpoint_slots = state.ledger.endpoint_slots(endpoint.address)
    for model, pool in endpoint_slots.pools():
        reading = endpoint.models_by_name.get(model)
        shared = endpoint.shared_context(reading, pool.slots)
        capacity = None if shared is None else shared.tokens
        if capacity is None and pool.tokens is None:
            continue
        if capacity is not None and pool.tokens is None:
            state.ledger.shares_contexts = True
            for lease in pool.leases.values():
                run = state.in_flight.get(lease)
                if run is not None:
                    lease.demand = state.demands.of_model(
                        lease.model, run.objective.name, run.request, lease.opened_at
                    )
        pool.share_context(capacity)
    if endpoint_slots.model_pools:
        endpoint_slots.share_context(None)


def overflowed(state: State, lease: Lease, now: float) -> bool:
    """A request seems to have ended because the context of its server was full. Returns whether
    that may be: the slots may share it, and the request was not alone."""
    endpoint = state.fleet.get(lease.address)
    if endpoint is None or endpoint.is_context_split(lease.model_pool):
        return False
    endpoint_slots = state.ledger.endpoint_slots(lease.address)
    pool = endpoint_slots.model_pools.get(lease.model_pool, endpoint_slots)
    is_recent = endpoint.overflowed_at is not None and now - endpoint.overflowed_at <= TOGETHER_S
    if not is_recent and len(pool.leases) + pool.foreign_slots <= 1:
        return False
    _learn_overflow(state, endpoint, pool, now)
    return True


def overflow_read(state: State, address: Address, model: str | None, now: float) -> bool:
    """The end of a stream says that the context of its server was full. Returns whether that is
    possible: the slots may share it. Others that ran there may have ended before."""
    endpoint = state.fleet.get(address)
    if endpoint is None:
        return False
    pool, name, _ = slot_pool(endpoint, state.ledger.endpoint_slots(address), model)
    if endpoint.is_context_split(name or ""):
        return False
    _learn_overflow(state, endpoint, pool, now)
    return True


def _learn_overflow(state: State, endpoint: Endpoint, pool: EndpointSlots, now: float) -> None:
    if endpoint.overflowed(now):
        share_contexts(state, endpoint)
        if pool.tokens is not None:
            pool.tokens.overflowed()


def observe_tokens(
    state: State, endpoint_slots: EndpointSlots, observation: Observation, runs: Runs
) -> None:
    """A scrape shows what the busy slots hold."""
    by_model: dict[str, list[SlotReading]] = {}
    for reading in observation.slot_readings:
        by_model.setdefault(reading.model, []).append(reading)
    for model, pool in endpoint_slots.pools():
        if pool.tokens is not None:
            _observe_pool(
                state, model, pool, pool.tokens, by_model.get(model, []), runs, observation
            )


def _observe_pool(
    state: State,
    model: str,
    pool: EndpointSlots,
    tokens: TokenPool,
    readings: list[SlotReading],
    runs: Runs,
    observation: Observation,
) -> None:
    others, ours = [], []
    for reading in readings:
        found = runs.get(task_of(reading))
        if found is None:
            others.append(reading)
        else:
            ours.append((*found, reading))
    for together in _begun_together(ours):
        if len(together) > 1 and not all(pair[2].decoded_tokens for pair in together):
            continue  # in its prefill a longer prompt may still look like the shorter one
        for lease, run, reading in together:
            whole, claim = reading.whole_prompt_tokens, tokens.claims[lease.id]
            if not reading.decoded_tokens:
                claim.seen_at = observation.began_at
                continue
            if not whole:
                continue
            if not claim.decoded_tokens and len(together) == 1:
                state.prompt_sizes.record_most(lease.model or "", run.request, whole)
            claim.seen(whole, reading.decoded_tokens, tokens.capacity_tokens)
            claim.seen_at = observation.began_at
    others.sort(key=_held, reverse=True)
    began_at = observation.began_at
    foreign = others[: pool.foreign_slots]
    tokens.saw_foreign(
        tuple(_foreign(state, model, one, tokens, began_at) for one in foreign),
        observation.answered_at,
    )
    latency = state.latency.endpoint(observation.address)
    tokens.token_s = latency.careful_token_s(max(1, len(readings))) or inf


def _begun_together(ours: list[Pair]) -> list[list[Pair]]:
    """Our requests by the time at which they began. Of those that were sent within the time of a
    transit, one may have overtaken another: then the longer task is that of the longer request."""
    groups: list[list[Pair]] = []
    sent_at = -inf
    for pair in sorted(ours, key=_opened_at):
        if pair[0].opened_at - sent_at > ARRIVAL_S:
            groups.append([])
        groups[-1].append(pair)
        sent_at = pair[0].opened_at
    for group in groups:
        if len(group) > 1:
            requests = sorted(group, key=_likely_tokens)
            tasks = sorted((pair[2] for pair in group), key=_whole_prompt)
            group[:] = [(*pair[:2], task) for pair, task in zip(requests, tasks, strict=True)]
    return groups


def _opened_at(pair: Pair) -> float:
    return pair[0].opened_at


def _likely_tokens(pair: Pair) -> int:
    return pair[1].request.likely_tokens


def _whole_prompt(reading: SlotReading) -> int:
    return reading.whole_prompt_tokens or 0


def _foreign(
    state: State, model: str, reading: SlotReading, tokens: TokenPool, seen_at: float
) -> TokenClaim:
    held, decoded = _held(reading), reading.decoded_tokens or 0
    prompt = max(0, held - decoded)
    left = reading.remaining_tokens
    most = None if left is None else float(decoded + left)
    demand = state.demands.of_foreign(model, prompt, most, seen_at)
    return TokenClaim(demand, tokens.capacity_tokens, decoded)


def _held(reading: SlotReading) -> int:
    return max(reading.prompt_tokens or 0, reading.whole_prompt_tokens or 0)


def learn_length(
    state: State, lease: Lease, run: InFlightRequest, end: LeaseEnd, now: float
) -> None:
    """A request ended: its answer was as long as the last scrape showed, and as its server's speed
    allows since then. If its client left, or if it had what its client allowed it, it would have
    become longer; if it is not streamed it has no headers then, so a token that a scrape saw shows
    that it had begun.

    An answer that seems too short overflows a context, one that seems too long costs a wait. So
    only speeds that were measured there count, and the quickest of them while they are few: a
    machine that stands still for a moment makes a speed a tenth of what it is. An answer that no
    scrape saw is short, and may have been all of its time, without its prompt."""
    if run.is_error or run.is_cold or end is LeaseEnd.HANDED_OVER:
        return
    request, progress = run.request, run.progress
    if progress is not None and not progress.has_token:
        progress = None
    if run.answered_at is None and progress is None:
        return
    if request.kind is not Kind.GENERATION or lease.weight_slots > 1:
        return
    pool = state.ledger.endpoint_slots(lease.address)
    latency = state.latency.endpoint(lease.address)
    busy_slots = max(1, pool.slots - pool.free_slots)
    if progress is not None:
        token_s = latency.careful_token_s(busy_slots)
        decoded_at, decoded = progress.last_token
    else:
        token_s, decoded_at, decoded = latency.least_token_s(busy_slots), lease.opened_at, 0
    if not token_s:
        return
    answer_tokens = decoded + max(0.0, now - decoded_at) / token_s
    is_complete = end is LeaseEnd.SERVED
    if request.max_tokens is not None:
        is_complete = is_complete and answer_tokens < AS_ALLOWED * request.max_tokens
        answer_tokens = min(answer_tokens, request.max_tokens)
    features = features_of(request, lease.model, run.objective.name)
    state.answer_lengths.add(features, answer_tokens, is_complete=is_complete)
