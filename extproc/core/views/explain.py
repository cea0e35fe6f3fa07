"""Explains what would happen to a request and why, without the decision being made."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from extproc.core.address import Address
from extproc.core.bounds import Bound
from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.fleet.eligibility import EXCLUDED_BY_RULE, why_not
from extproc.core.fleet.endpoint import Endpoint, Intent
from extproc.core.fleet.health import SERVING
from extproc.core.rejection import Reason
from extproc.core.request import Request, ResolvedRequest, in_time
from extproc.core.request_groups import TEXTS, Group
from extproc.core.selection.cost import Cost
from extproc.core.selection.endpoint_picker import ttft_limit_s
from extproc.core.slots.endpoint_slots import EndpointSlots
from extproc.core.slots.model_pools import slot_pool
from extproc.core.slots.token_demand import TokenDemand
from extproc.core.views.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunRequest:
    """A request as its client would send it; `body` may be a part of it. `client` names whose
    request it is, in place of a key, `pool` its pool, in place of what chooses one."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    client: str = ""
    pool: str = ""


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
    view: View, request: Request, now: float | None = None, *, may_queue: bool = True
) -> Explanation:
    """What `Dispatcher.submit` would decide now. O(n log n); changes nothing.

    `now` defaults to the time of the dispatcher's last event. If a model name is split by weights,
    one of its models is drawn as an example.
    """
    now = view.last_event_at if now is None else now
    if view.state.poison.is_poison(request.fingerprint, now):
        details = _request_details(request)
        return Explanation(candidates=(), reason=Reason.POISON_REQUEST, resolved=details)
    resolved = view.state.resolve(request, Random(0))
    if isinstance(resolved, Reason):
        return Explanation(candidates=(), reason=resolved, resolved=_request_details(request))
    request = in_time(view.state.resolver.of_pool(request.pool).apply(request, resolved), resolved)
    if text := view.state.why_failed(resolved.constraints):
        details = _request_details(request) | {"failed": text}
        return Explanation(candidates=(), reason=Reason.MODEL_FAILED, resolved=details)
    preview = view.preview(resolved, request, now, may_queue=may_queue)
    candidates = _ranked(view, resolved, request, now, preview.address)
    details = _request_details(request)
    details |= _resolution_details(view, resolved, request, now)
    if preview.address is not None:
        return Explanation(candidates=candidates, chosen=preview.address, resolved=details)
    if preview.reason is not None:
        return Explanation(candidates=candidates, reason=preview.reason, resolved=details)
    if preview.waits_for is not None:
        details["waits_for"] = str(preview.waits_for)
    queue_position = view.position_of_arrival(resolved, request, now)
    return Explanation(
        candidates=candidates,
        position=queue_position.position,
        expected_s=queue_position.expected_s,
        resolved=details,
        note=view.queue_note(resolved, request, now),
    )


def _request_details(request: Request) -> dict[str, str]:
    """What was read from the request."""
    details: dict[str, object] = {
        "weight_slots": request.weight_slots,
        "timeout_s": f"{request.timeout_s:g}",
        "pool": request.pool or None,
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
    view: View, resolved: ResolvedRequest, request: Request, now: float
) -> dict[str, str]:
    """How it was resolved in this fleet: model, criticality, objective, SLO attainment, session."""
    objective, state = resolved.objective, view.state
    details = {"criticality": objective.criticality.label}
    if state.fleet.far:
        may_spill = state.options.spill.permits(objective, request.tenant)
        details["may_spill"] = "yes" if may_spill else "no"
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
    if resolved.bounds:
        details["bounds"] = "; ".join(map(_bound_text, resolved.bounds))
    if resolved.groups:
        details["limits"] = "; ".join(map(_group_text, resolved.groups))
    if view.rules is not None and (problems := view.rules.problems()):
        details["rules"] = "; ".join(problems)
    flow = state.fairness.peek(objective, request.fairness_id, request.tenant)
    debt_s = state.fairness.debt_s(flow)
    details["fairness_debt_s"] = f"{debt_s:.1f}"
    if state.sizes is not None:
        slot_s, _ = state.sizes.expected(resolved, request, now)
        known = f"expected to take {slot_s:.2g} slot-seconds" if slot_s else "not known"
        details["queue_order"] = "shortest expected first, within its flow"
        details["size"] = known
    if state.queue.order.is_started_first:
        details["queue_order"] = "started sessions first, within its flow"
        details["session"] = "started" if state.has_started(request) else "new"
    return details


def _bound_text(bound: Bound) -> str:
    limits = bound.limits
    parts = [
        f"{bound.kind.value} {bound.name}",
        f"{bound.running}{_of(limits.running)} running",
        f"{bound.queued}{_of(limits.queued)} queued",
    ]
    if limits.queue_timeout_s is not None:
        parts.append(f"{limits.queue_timeout_s:g} s in the queue at most")
    return ", ".join([*parts, *(["newest first"] if limits.is_last_come else [])])


def _group_text(group: Group) -> str:
    kind, name = TEXTS[group.key.kind], group.key.name
    counts = f"{group.requests} of {group.most} running or next, {group.held_back} held back"
    return f"{kind} {name}, {counts}"


def _of(most: int | None) -> str:
    return "" if most is None else f" of {most}"


def explain_passing(view: View, constraints: Constraints = UNCONSTRAINED) -> Explanation:
    """Where a request that takes no slot would go now. O(n log n); changes nothing."""
    resolved = ResolvedRequest(constraints)
    candidates = _ranked(view, resolved, None, view.last_event_at)
    first = candidates[0] if candidates and candidates[0].rank else None
    return Explanation(
        candidates=candidates,
        chosen=first.address if first is not None else None,
        takes_slot=False,
    )


def _ranked(
    view: View,
    resolved: ResolvedRequest,
    request: Request | None,
    now: float,
    chosen: Address | None = None,
) -> tuple[Candidate, ...]:
    """Every endpoint, best first; filtered ones come last. `chosen` is the best of those with about
    the same cost."""
    rated = []
    picker = view.state.endpoint_picker
    is_weighed = request is not None and picker.weighs(resolved, request)
    ttft_s = None if request is None else ttft_limit_s(resolved, request)
    demand: TokenDemand | None = None
    if request is not None and view.state.ledger.shares_contexts:
        demand = view.state.demands.of(resolved, request, now)
    for endpoint in view.fleet:
        endpoint_slots = view.slots_at(endpoint.address)
        is_chosen = endpoint.address == chosen
        why = (
            ()
            if is_chosen
            else tuple(_filters(view, endpoint, endpoint_slots, resolved, request, demand, now))
        )
        pool, _, is_loaded = slot_pool(endpoint, endpoint_slots, resolved.constraints.model)
        share = pool.free_slots / pool.slots if pool.slots else 0.0
        cost = None
        if is_weighed and request is not None:
            cost = view.cost_at(resolved, request, endpoint.address, now)
        cost_s = 0.0 if cost is None else cost.total_s
        is_late = cost is not None and ttft_s is not None and cost.first_token_s > ttft_s
        is_preferred = endpoint.is_first_choice or is_weighed
        key = (not why, is_chosen, is_loaded, is_preferred, not is_late, -cost_s, share)
        added = (
            () if request is None or view.rules is None else (view.rules.costs(request, endpoint))
        )
        rated.append((key, endpoint, why, tuple(_scores(endpoint, share, cost, ttft_s, added))))
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
    endpoint: Endpoint,
    share: float,
    cost: Cost | None,
    ttft_s: float | None,
    added: Iterable[tuple[str, float]],
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
        for name, seconds in added:
            yield Score(name=name, value=seconds, detail="seconds that this rule adds")
        is_cached = bool(cost.saved_s or cost.forgone_s)
        yield Score(name="saved_s", value=cost.saved_s, detail=cached if is_cached else "")


def _filters(
    view: View,
    endpoint: Endpoint,
    endpoint_slots: EndpointSlots,
    resolved: ResolvedRequest,
    request: Request | None,
    demand: TokenDemand | None,
    now: float,
) -> Iterator[str]:
    constraints = resolved.constraints
    for text in why_not(constraints, endpoint):
        rules = view.rules if text == EXCLUDED_BY_RULE and request is not None else None
        reasons = (
            rules.why_not(request, endpoint) if rules is not None and request is not None else ()
        )
        yield from reasons or (text,)
    if endpoint.is_removed:
        yield "it was removed from the fleet and finishes its last requests"
    if endpoint.intent is not Intent.ACTIVE:
        yield f"an operator made it {endpoint.intent.value}"
    if endpoint.health not in SERVING:
        yield f"it is {endpoint.health.value}"
    if endpoint.is_going_off:
        yield "its machine is being put to sleep"
    if endpoint.is_waking:
        yield "its machine is being woken"
    if endpoint.paused_until is not None:
        yield "it answered 429 and is paused"
    if endpoint.is_ejected:
        yield view.state.outliers.ejection_reason(endpoint.address, now)
    if not endpoint.is_routable:
        yield "not every Envoy knows it yet"
    weight_slots = 0 if request is None else request.weight_slots
    pool, model, is_loaded = slot_pool(endpoint, endpoint_slots, constraints.model)
    may_load = model is None or view.state.model_loads.may_start(model)
    if model is not None and not is_loaded:
        if not pool.free_slots or not may_load:
            yield "another endpoint is loading the model; only one at a time does"
    elif pool.slots == 0:
        yield "it has not reported its number of slots"
    elif endpoint.is_serving and pool.free_slots < min(weight_slots, pool.slots):
        taken = f"{pool.leased_slots} leased, {pool.foreign_slots} foreign"
        full = "its cache has no room, so " if pool.is_full else ""
        yield f"{full}{pool.free_slots} of its {pool.slots} slots are free ({taken})"
    elif weight_slots and pool.reservation is not None:
        yield "its free slots are reserved for a request that needs more"
    elif demand is not None and pool.tokens is not None and not pool.tokens.admits(demand):
        tokens = pool.tokens
        prompt_tokens = min(demand.prompt_tokens, tokens.capacity_tokens)
        yield (
            f"its slots share {tokens.capacity_tokens} tokens: {tokens.held_tokens:.0f} are held, "
            f"{tokens.reserved_tokens:.0f} expected, and its prompt may take {prompt_tokens:.0f}"
        )
