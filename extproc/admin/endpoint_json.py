"""One endpoint as plain values: the fields of the message `Endpoint`, and what `/status` shows."""

from typing import Any

from extproc.core.fleet.endpoint import Endpoint
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.view import SlotCounts, TokenCounts


def endpoint_json(dispatcher: Dispatcher, endpoint: Endpoint, now: float) -> dict[str, Any]:
    """Every field of `Endpoint` by its name; `health` and `intent` are words. O(leases there)."""
    address, spec = endpoint.address, endpoint.spec
    view, fleet = dispatcher.view, dispatcher.fleet
    slots = view.slots_at(address)
    return {
        "address": str(address),
        "name": spec.name,
        "unique_name": fleet.name_of(address),
        "hostname": spec.hostname,
        "health": endpoint.health.value,
        "intent": endpoint.intent.value,
        "slots": slots_json(view.slot_counts(endpoint)),
        "models": [
            {"name": model.name, "aliases": model.aliases, "is_loaded": model.is_loaded}
            for model in endpoint.models
        ],
        "issues": [
            {"code": issue.code, "message": issue.message, "remedy": issue.remedy}
            for issue in endpoint.issues
        ],
        "observed_age_s": _age_s(endpoint.observed_at, now),
        "sources": fleet.sources_of(address),
        "is_fresh": endpoint.is_fresh,
        "is_known_to_envoy": endpoint.is_routable,
        "is_removed": endpoint.is_removed,
        "is_pickable": endpoint.is_pickable,
        "is_ejected": endpoint.ejection_issue is not None,
        "is_waking": endpoint.is_waking,
        "is_going_off": endpoint.is_going_off,
        "leases": len(slots.leases),
        "intent_age_s": _age_s(endpoint.intent_since, now),
        "tokens": _tokens(view.token_counts(endpoint)),
        "labels": dict(spec.labels),
        "runner": endpoint.runner,
        "is_foreign_known": slots.reports_busy_slots,
        "tier": spec.tier,
        "pool": spec.pool,
    }


def slots_json(counts: SlotCounts) -> dict[str, int]:
    """Every field of `Slots` by its name: the slots of an endpoint, or of several together."""
    return {
        "total": counts.total,
        "leased": counts.leased,
        "foreign": counts.foreign,
        "idle": counts.idle,
        "draining": counts.draining,
        "unusable": counts.unusable,
    }


def _tokens(tokens: TokenCounts | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    return {
        "total": tokens.total,
        "held": tokens.held,
        "reserved": tokens.reserved,
        "free": tokens.free,
        "source": tokens.source.value,
    }


def _age_s(since: float | None, now: float) -> float | None:
    return None if since is None else max(0.0, now - since)
