"""The snapshot of everything, as plain values for `/status`; and what Coxswain has learned of one
endpoint.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from itertools import chain, islice
from typing import Any, Final

from extproc.core.address import Address
from extproc.core.bounds import Bound
from extproc.core.constraints import FIRST_TIER
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.health import Health
from extproc.core.fleet.membership import ConnectedEnvoy
from extproc.core.queue.flow_order import QueueOrder
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.pool_counts import pool_counts
from extproc.core.views.scale_advisor import ModelScale
from extproc.core.views.snapshot import take_queue_snapshot
from extproc.core.views.view import SlotCounts

SLOT_KINDS: Final = tuple(field.name for field in fields(SlotCounts))


def status_json(
    dispatcher: Dispatcher,
    *,
    exchanges: int,
    envoys: Iterable[ConnectedEnvoy],
    outcomes: Mapping[str, int],
    bypassed: int = 0,
    now: float,
    limit: int | None = None,
    named: str = "",
) -> dict[str, Any]:
    """What `/status` shows. O(endpoints).

    With `limit` at most that many endpoints are described, those with issues or down first, and
    beside them the one of the name or address `named`. Counts are always those of all.

    `exchanges` are all that Envoy has open, `outcomes` how many ended in which way, `bypassed` how
    many Envoy sent to a server without the picker.
    """
    queue = take_queue_snapshot(dispatcher.view, now)
    endpoints = list(dispatcher.fleet)
    counts = [
        dispatcher.view.slot_counts(endpoint)
        for endpoint in endpoints
        if endpoint.spec.tier == FIRST_TIER
    ]
    described = endpoints if limit is None else _described(dispatcher, endpoints, limit, named)
    return {
        "slots": {kind: sum(getattr(one, kind) for one in counts) for kind in SLOT_KINDS},
        "endpoints_by_health": Counter(endpoint.health.value for endpoint in endpoints),
        "endpoints_by_intent": Counter(endpoint.intent.value for endpoint in endpoints),
        "endpoints": {
            str(endpoint.address): _endpoint(dispatcher, endpoint, now) for endpoint in described
        },
        "queue": {
            "queued": queue.queued,
            "max_requests": queue.max_requests,
            "body_bytes": queue.body_bytes,
            "max_body_bytes": queue.max_body_bytes,
            "by_criticality": queue.by_criticality,
            "longest_wait_s": _rounded(queue.longest_wait_s),
            "expected_s": _rounded(queue.expected_s),
            "by_model": {
                model: {
                    "queued": one.queued,
                    "by_reason": {reason.value: count for reason, count in one.by_reason.items()},
                    "idle_slots": one.idle_slots,
                }
                for model, one in queue.by_model.items()
            },
            "bounds": list(map(_bound, dispatcher.view.bounds)),
            "idle_note": queue.idle_note,
            **_order(dispatcher.view.queue_order),
        },
        **_spill(dispatcher),
        **_pools(dispatcher),
        "scale": {model: _scale(one) for model, one in sorted(dispatcher.view.scale(now).items())},
        "running": dispatcher.view.running_requests,
        "exchanges": exchanges,
        "outcomes": dict(outcomes),
        "bypassed": bypassed,
        "fleet_version": dispatcher.fleet.membership().version,
        "envoys": [_envoy(envoy) for envoy in envoys],
    }


def _described(
    dispatcher: Dispatcher, endpoints: list[Endpoint], limit: int, named: str
) -> list[Endpoint]:
    if len(endpoints) <= limit:
        return endpoints
    urgent = [one for one in endpoints if one.issues or one.health is Health.DOWN]
    rest = (one for one in endpoints if not one.issues and one.health is not Health.DOWN)
    chosen = {one.address: one for one in islice(chain(urgent, rest), limit)}
    if named:
        name_of = dispatcher.fleet.name_of
        chosen |= {
            one.address: one
            for one in endpoints
            if named in (str(one.address), name_of(one.address))
        }
    return list(chosen.values())


def _pools(dispatcher: Dispatcher) -> dict[str, Any]:
    """Each pool in numbers, where pools are configured."""
    found = {one.name: asdict(one) for one in pool_counts(dispatcher.view)}
    for one in found.values():
        del one["name"]
    return {"pools": found} if found else {}


def _spill(dispatcher: Dispatcher) -> dict[str, Any]:
    """What went to higher tiers, if there are any."""
    far = dispatcher.fleet.far
    if not far:
        return {}
    running = sum(len(dispatcher.view.slots_at(one.address).leases) for one in far)
    return {
        "spill": {
            "running": running,
            "spilled": dispatcher.view.spilled,
            "closed": dispatcher.view.spill_closed,
        }
    }


def learned_json(dispatcher: Dispatcher, address: Address, now: float) -> dict[str, Any]:
    """The latency model of a member of the fleet, and its ejections since the start by cause.

    `prompt_tokens_per_s` is for uncached tokens, `tokens_per_s` for one request while the slots are
    as busy as now; `samples` is a decayed number: with few, the fleet's typical endpoint counts.
    """
    estimate, samples = dispatcher.view.latency_at(address, now)
    slots = dispatcher.view.slots_at(address)
    busy = slots.leased_slots + slots.foreign_slots
    return {
        "endpoint": str(address),
        "samples": round(samples, 1),
        "fixed_s": round(estimate.fixed_s, 3),
        "prompt_tokens_per_s": _rate(estimate.prefill_s),
        "tokens_per_s": _rate(estimate.token_s(max(1, busy))),
        "answer_tokens": round(estimate.answer_tokens, 1),
        "slot_s": round(estimate.slot_s, 3),
        "ejections": {
            fault.value: count for fault, count in dispatcher.view.ejection_totals(address).items()
        },
    }


def _bound(bound: Bound) -> dict[str, Any]:
    limits = bound.limits
    return {
        "kind": bound.kind.value,
        "name": bound.name,
        "running": bound.running,
        "max_running": limits.running,
        "queued": bound.queued,
        "max_queued": limits.queued,
        "queue_timeout_s": limits.queue_timeout_s,
        "order": "lifo" if limits.is_last_come else "fifo",
    }


def _order(order: QueueOrder) -> dict[str, Any]:
    """The order within each flow, unless it is that of arrival."""
    label = order.label
    return {} if label is None else {"order": label, "max_overtaken_s": order.max_overtaken_s}


def _scale(scale: ModelScale) -> dict[str, Any]:
    traffic = scale.traffic
    return {
        "wanted": scale.wanted,
        "servers": traffic.servers,
        "cause": scale.cause.value,
        "queued_slots": traffic.queued_slots,
        "busy_slots": traffic.busy_slots,
        "arrivals_per_s": _rounded(traffic.arrivals_per_s),
        "service_s": _rounded(traffic.service_s),
        "slots": _rounded(traffic.slots),
    }


def _envoy(envoy: ConnectedEnvoy) -> dict[str, Any]:
    version = envoy.acknowledged_version
    return {"node_id": envoy.node_id, "acknowledged_version": version if version >= 0 else None}


def _endpoint(dispatcher: Dispatcher, endpoint: Endpoint, now: float) -> dict[str, Any]:
    counts = dispatcher.view.slot_counts(endpoint)
    return {
        "name": endpoint.spec.name,
        "unique_name": dispatcher.fleet.name_of(endpoint.address),
        "hostname": endpoint.spec.hostname,
        "health": endpoint.health.value,
        "intent": endpoint.intent.value,
        "intent_age_s": _age(endpoint.intent_since, now),
        "is_removed": endpoint.is_removed,
        "is_waking": endpoint.is_waking,
        "is_going_off": endpoint.is_going_off,
        "is_pickable": endpoint.is_pickable,
        "is_known_to_envoy": endpoint.is_routable,
        "is_fresh": endpoint.is_fresh,
        "is_ejected": endpoint.ejection_issue is not None,
        "runner": endpoint.runner,
        "is_foreign_known": dispatcher.view.slots_at(endpoint.address).reports_busy_slots,
        "slots": {kind: getattr(counts, kind) for kind in SLOT_KINDS},
        **_tokens(dispatcher, endpoint),
        "tier": endpoint.spec.tier,
        **({"pool": endpoint.spec.pool} if endpoint.spec.pool else {}),
        **({"labels": dict(endpoint.spec.labels)} if endpoint.spec.labels else {}),
        "models": [model.name for model in endpoint.models],
        "observed_age_s": _age(endpoint.observed_at, now),
        "issues": [
            {"code": issue.code, "message": issue.message, "remedy": issue.remedy}
            for issue in endpoint.issues
        ],
    }


def _tokens(dispatcher: Dispatcher, endpoint: Endpoint) -> dict[str, Any]:
    """The context that its slots share, if they do."""
    tokens = dispatcher.view.token_counts(endpoint)
    return {} if tokens is None else {"tokens": asdict(tokens) | {"source": tokens.source.value}}


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else _rounded(now - since)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _rate(seconds: float) -> float | None:
    """How many in a second; None for no time at all."""
    return round(1 / seconds, 1) if seconds > 0 else None
