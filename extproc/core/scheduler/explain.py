"""Explains what would happen to a request and why, without the decision being made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from extproc.core.address import Address
from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.fleet.eligibility import why_not
from extproc.core.fleet.endpoint import Endpoint, Intent
from extproc.core.fleet.health import SERVING
from extproc.core.rejection import Reason
from extproc.core.request import Request, ResolvedRequest
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.sizing import expected_size
from extproc.core.selection.cost import Cost
from extproc.core.selection.endpoint_picker import has_preferences, ttft_limit_s
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.slots.model_pools import slot_pool
from extproc.core.slots.token_demand import TokenDemand


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunRequest:
    """A request as its client would send it; `body` may be a part of it. `client` names whose
    request it is, in place of a key."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    client: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One part of a candidate's rank, in the unit that its name states."""

    name: str
    value: float
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The result for one endpoint. `rank` is 1 for the best, the same for ties, 0 if filtered."""

    address: Address
    name: str
    filtered: tuple[str, ...] = ()
    scores: tuple[Score, ...] = ()
    rank: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The decision is passed, rejected (`reason`), queued (`position`) or picked (`chosen`)."""

    candidates: tuple[Candidate, ...]
    chosen: Address | None = None
    position: int = 0
    reason: Reason | None = None
    takes_slot: bool = True
    expected_s: float | None = None
    resolved: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def explain(
    dispatcher: Dispatcher, request: Request, now: float | None = None, *, may_queue: bool = True
) -> Explanation:
    """What `Dispatcher.submit` would decide now. O(n log n); changes nothing.

    `now` defaults to the time of the dispatcher's last event. If a model name is split by weights,
    one of its models is drawn as an example.
    """
    now = dispatcher.last_event_at if now is None else now
    if dispatcher.state.poison.is_poison(request.fingerprint, now):
        details = _request_details(request)
        return Explanation(candidates=(), reason=Reason.POISON_REQUEST, resolved=details)
    resolved = dispatcher.resolve(request, Random(0))
    if isinstance(resolved, Reason):
        return Explanation(candidates=(), reason=resolved, resolved=_request_details(request))
    request = dispatcher.state.resolver.apply(request, resolved)
    if text := dispatcher.state.why_failed(resolved.constraints):
        details = _request_details(request) | {"failed": text}
        return Explanation(candidates=(), reason=Reason.MODEL_FAILED, resolved=details)
    preview = dispatcher.preview(resolved, request, now, may_queue=may_queue)
    candidates = _ranked(dispatcher, resolved, request, now, preview.address)
    details = _request_details(request)
    details |= _resolution_details(dispatcher, resolved, request, now)
    if preview.address is not None:
        return Explanation(candidates=candidates, chosen=preview.address, resolved=details)
    if preview.reason is not None:
        return Explanation(candidates=candidates, reason=preview.reason, resolved=details)
    if preview.waits_for is not None:
        details["waits_for"] = str(preview.waits_for)
    queue_position = dispatcher.position_of_arrival(resolved, request, now)
    return Explanation(
        candidates=candidates,
        position=queue_position.position,
        expected_s=queue_position.expected_s,
        resolved=details,
        note=dispatcher.wait_note(resolved.constraints.model, now),
    )


def _request_details(request: Request) -> dict[str, str]:
    """What was read from the request."""
    details: dict[str, object] = {
        "weight_slots": request.weight_slots,
        "timeout_s": f"{request.timeout_s:g}",
        "model": request.model,
        "adapter": request.adapter,
        "adapter_numbers": ", ".join(map(str, sorted(request.adapter_numbers))) or None,
        "prompt_tokens": request.prompt_tokens,
        "prompt_blocks": len(request.prompt_blocks) or None,
        "max_tokens": request.max_tokens,
        "session": request.session_id,
    }
    return {name: str(value) for name, value in details.items() if value is not None}


def _resolution_details(
    dispatcher: Dispatcher, resolved: ResolvedRequest, request: Request, now: float
) -> dict[str, str]:
    """How it was resolved in this fleet: model, criticality, objective, SLO attainment, session."""
    objective, state = resolved.objective, dispatcher.state
    details = {"criticality": objective.criticality.label}
    if resolved.model is not None and resolved.model != request.model:
        details["resolved_model"] = resolved.model
    if resolved.constraints.context_tokens:
        details["needed_context_tokens"] = str(resolved.constraints.context_tokens)
    if objective.name:
        details["objective"] = objective.name
    if objective.has_slo:
        details["slo_attainment"] = f"{state.slo_attainment.share(objective.name, now):.1%}"
    address = state.sessions.last_endpoint(request.session_id)
    if address is not None:
        details["session_served_by"] = str(address)
    flow = state.fairness.peek(objective, request.fairness_id, request.tenant)
    debt_s = state.fairness.debt_s(flow)
    details["fairness_debt_s"] = f"{debt_s:.1f}"
    if state.sizes is not None:
        slot_s, _ = expected_size(state, state.sizes, resolved, request, now)
        known = f"expected to take {slot_s:.2g} slot-seconds" if slot_s else "not known"
        details["queue_order"] = "shortest expected first, within its flow"
        details["size"] = known
    return details


def explain_passing(
    dispatcher: Dispatcher, constraints: Constraints = UNCONSTRAINED
) -> Explanation:
    """Where a request that takes no slot would go now. O(n log n); changes nothing."""
    resolved = ResolvedRequest(constraints)
    candidates = _ranked(dispatcher, resolved, None, dispatcher.last_event_at)
    first = candidates[0] if candidates and candidates[0].rank else None
    return Explanation(
        candidates=candidates,
        chosen=first.address if first is not None else None,
        takes_slot=False,
    )


def _ranked(
    dispatcher: Dispatcher,
    resolved: ResolvedRequest,
    request: Request | None,
    now: float,
    chosen: Address | None = None,
) -> tuple[Candidate, ...]:
    """Every endpoint, best first; filtered ones come last. `chosen` is the best of those with about
    the same cost."""
    rated = []
    is_weighed = request is not None and has_preferences(resolved, request)
    ttft_s = None if request is None else ttft_limit_s(resolved, request)
    demand: TokenDemand | None = None
    if request is not None and dispatcher.ledger.shares_contexts:
        demand = dispatcher.state.demands.of(resolved, request)
    for endpoint in dispatcher.fleet:
        endpoint_slots = dispatcher.ledger.endpoint_slots(endpoint.address)
        weight_slots = 0 if request is None else request.weight_slots
        is_chosen = endpoint.address == chosen
        why = (
            ()
            if is_chosen
            else tuple(
                _filters(dispatcher, endpoint, endpoint_slots, resolved, weight_slots, demand, now)
            )
        )
        pool, _, is_loaded = slot_pool(endpoint, endpoint_slots, resolved.constraints.model)
        share = pool.free_slots / pool.slots if pool.slots else 0.0
        cost = None
        if is_weighed and request is not None:
            cost = dispatcher.cost_at(resolved, request, endpoint.address, now)
        cost_s = 0.0 if cost is None else cost.total_s
        is_late = cost is not None and ttft_s is not None and cost.first_token_s > ttft_s
        is_preferred = endpoint.is_first_choice or is_weighed
        key = (not why, is_chosen, is_loaded, is_preferred, not is_late, -cost_s, share)
        rated.append((key, endpoint, why, tuple(_scores(endpoint, share, cost, ttft_s))))
    rated.sort(key=lambda entry: (entry[0], entry[1].address), reverse=True)
    candidates: list[Candidate] = []
    rank, last = 0, None
    for key, endpoint, why, scores in rated:
        if key != last and key[0]:
            rank, last = len(candidates) + 1, key
        candidates.append(
            Candidate(
                address=endpoint.address,
                name=endpoint.spec.name,
                filtered=why,
                scores=scores,
                rank=0 if why else rank,
            )
        )
    return tuple(candidates)


def _scores(
    endpoint: Endpoint, share: float, cost: Cost | None, ttft_s: float | None
) -> Iterator[Score]:
    yield Score(name="free_share", value=share)
    is_first = endpoint.is_first_choice
    detail = "" if is_first else "a backup: it sleeps, or its last observation is old"
    yield Score(name="first_choice", value=float(is_first), detail=detail)
    if cost is not None:
        is_late = ttft_s is not None and cost.first_token_s > ttft_s
        late = f"later than the SLO of {ttft_s:g} s" if is_late else ""
        cached = f"about {cost.cached_tokens:.0f} tokens in its cache"
        if cost.forgone_s:
            cached += f" do not count, {cost.forgone_s:.2g} s: it is used beyond its share"
        yield Score(name="cost_s", value=cost.total_s)
        yield Score(name="first_token_s", value=cost.first_token_s, detail=late)
        yield Score(name="answer_s", value=cost.answer_s)
        yield Score(name="adapter_s", value=cost.adapter_s)
        if cost.stall_s:
            stalled = "what running answers there lose while its prompt is read"
            yield Score(name="stall_s", value=cost.stall_s, detail=stalled)
        is_cached = bool(cost.saved_s or cost.forgone_s)
        yield Score(name="saved_s", value=cost.saved_s, detail=cached if is_cached else "")


def _filters(
    dispatcher: Dispatcher,
    endpoint: Endpoint,
    endpoint_slots: EndpointSlots,
    resolved: ResolvedRequest,
    weight_slots: int,
    demand: TokenDemand | None,
    now: float,
) -> Iterator[str]:
    constraints = resolved.constraints
    yield from why_not(constraints, endpoint)
    if endpoint.is_removed:
        yield "it was removed from the fleet and finishes its last requests"
    if endpoint.intent is not Intent.ACTIVE:
        yield f"an operator made it {endpoint.intent.value}"
    if endpoint.health not in SERVING:
        yield f"it is {endpoint.health.value}"
    if endpoint.is_ejected:
        yield dispatcher.state.outliers.ejection_reason(endpoint.address, now)
    if not endpoint.is_routable:
        yield "not every Envoy knows it yet"
    pool, model, is_loaded = slot_pool(endpoint, endpoint_slots, constraints.model)
    may_load = model is None or dispatcher.state.model_loads.may_start(model)
    if model is not None and not is_loaded:
        if not pool.free_slots or not may_load:
            yield "another endpoint is loading the model; only one at a time does"
    elif pool.slots == 0:
        yield "it has not reported its number of slots"
    elif endpoint.is_serving and pool.free_slots < min(weight_slots, pool.slots):
        taken = f"{pool.leased_slots} leased, {pool.foreign_slots} foreign"
        yield f"{pool.free_slots} of its {pool.slots} slots are free ({taken})"
    elif weight_slots and pool.reservation is not None:
        yield "its free slots are reserved for a request that needs more"
    elif demand is not None and pool.tokens is not None and not pool.tokens.admits(demand):
        tokens = pool.tokens
        prompt_tokens = min(demand.prompt_tokens, tokens.capacity_tokens)
        yield (
            f"its slots share {tokens.capacity_tokens} tokens: {tokens.held_tokens:.0f} are held, "
            f"{tokens.reserved_tokens:.0f} expected, and its prompt may take {prompt_tokens:.0f}"
        )
