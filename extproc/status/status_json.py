"""The snapshot of everything, as plain values for `/status`."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from extproc.core.fleet.endpoint import Endpoint
from extproc.core.fleet.membership import ConnectedEnvoy
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.snapshot import take_queue_snapshot
from extproc.core.slots.slot_counts import SlotCounts


def status_json(
    dispatcher: Dispatcher,
    *,
    exchanges: int,
    envoys: Iterable[ConnectedEnvoy],
    outcomes: Mapping[str, int],
    now: float,
) -> dict[str, Any]:
    """What `/status` shows. O(endpoints).

    `exchanges` are all that Envoy has open, `outcomes` how many ended in which way.
    """
    queue = take_queue_snapshot(dispatcher, now)
    endpoints = {
        str(endpoint.address): _endpoint(endpoint, dispatcher.slot_counts(endpoint), now)
        for endpoint in dispatcher.fleet
    }
    return {
        "slots": {
            kind: sum(endpoint["slots"][kind] for endpoint in endpoints.values())
            for kind in ("total", "leased", "foreign", "idle", "unusable")
        },
        "endpoints": endpoints,
        "queue": {
            "queued": queue.queued,
            "max_requests": queue.max_requests,
            "body_bytes": queue.body_bytes,
            "max_body_bytes": queue.max_body_bytes,
            "by_criticality": queue.by_criticality,
            "longest_wait_s": _rounded(queue.longest_wait_s),
            "expected_s": _rounded(queue.expected_s),
        },
        "running": dispatcher.running_requests,
        "exchanges": exchanges,
        "outcomes": dict(outcomes),
        "fleet_version": dispatcher.fleet.membership().version,
        "envoys": [_envoy(envoy) for envoy in envoys],
    }


def _envoy(envoy: ConnectedEnvoy) -> dict[str, Any]:
    version = envoy.acknowledged_version
    return {"node_id": envoy.node_id, "acknowledged_version": version if version >= 0 else None}


def _endpoint(endpoint: Endpoint, counts: SlotCounts, now: float) -> dict[str, Any]:
    return {
        "name": endpoint.spec.name,
        "hostname": endpoint.spec.hostname,
        "health": endpoint.health.value,
        "intent": endpoint.intent.value,
        "is_removed": endpoint.is_removed,
        "is_pickable": endpoint.is_pickable,
        "is_known_to_envoy": endpoint.is_routable,
        "is_fresh": endpoint.is_fresh,
        "is_ejected": endpoint.ejection_issue is not None,
        "slots": asdict(counts),
        "models": [model.name for model in endpoint.models],
        "observed_age_s": _rounded(
            None if endpoint.observed_at is None else now - endpoint.observed_at
        ),
        "issues": [
            {"code": issue.code, "message": issue.message, "remedy": issue.remedy}
            for issue in endpoint.issues
        ],
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
