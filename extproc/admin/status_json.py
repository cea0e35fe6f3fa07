"""The picker as plain values: the fields of `GetStatusResponse`, and what `/status` shows.

A message is made of such a tree by its constructor; the other way, from messages to JSON, takes
twice as long for a large fleet (decision 0285).
"""

from collections import Counter
from dataclasses import asdict
from typing import Any

from extproc.admin.dependencies import AdminDependencies
from extproc.admin.endpoint_json import slots_json
from extproc.admin.placement_json import machines_json, models_json
from extproc.core.bounds import Bound
from extproc.core.fleet.membership import ConnectedEnvoy
from extproc.core.processes import Processes
from extproc.core.scaling.wanted import MEANINGS
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.views.pool_counts import PoolCounts, pool_counts
from extproc.core.views.scale_advisor import ModelScale
from extproc.core.views.snapshot import take_queue_snapshot
from extproc.core.views.view import View, sum_slots
from extproc.core.views.waits import ModelQueue


def status_json(dependencies: AdminDependencies) -> dict[str, Any]:
    """Every field of `GetStatusResponse` by its name, None where it is unset. O(endpoints)."""
    now, dispatcher = dependencies.clock(), dependencies.dispatcher
    view, fleet = dispatcher.view, dispatcher.fleet
    not_ready = dependencies.obstacles()
    processes = None if dependencies.processes is None else dependencies.processes()
    return {
        "version": dependencies.version,
        "uptime_s": max(0.0, now - dependencies.started_at),
        "is_ready": not not_ready,
        "not_ready": not_ready,
        "problems": dependencies.problems(),
        "slots": slots_json(
            sum_slots([view.slot_counts(one) for one in fleet if not one.spec.is_far])
        ),
        "endpoints_by_health": Counter(endpoint.health.value for endpoint in fleet),
        "endpoints_by_intent": Counter(endpoint.intent.value for endpoint in fleet),
        "queue": _queue(view, now),
        "running": view.running_requests,
        "exchanges": len(dependencies.registry),
        "outcomes": dict(dependencies.outcomes()),
        "bypassed": dependencies.bypassed(),
        "fleet_version": fleet.membership().version,
        "envoys": list(map(_envoy, dependencies.envoys())),
        "spill": _spill(dispatcher),
        "pools": list(map(_pool, pool_counts(view))),
        "scale": [scale_json(scale) for _, scale in sorted(view.scale(now).items())],
        "machines": machines_json(dependencies),
        # A server's log is for operators, and `/status` is open to who reaches its port.
        "models": [one | {"detail": ""} for one in models_json(dependencies, now)],
        "processes": None if processes is None else _processes(processes),
        "takes_actions": dependencies.takes_actions(),
    }


def scale_json(scale: ModelScale) -> dict[str, Any]:
    """Every field of `ModelScale` by its name."""
    traffic = scale.traffic
    return {
        "pool": scale.pool,
        "model": scale.model,
        "wanted": scale.wanted,
        "servers": traffic.servers,
        "cause": scale.cause.value,
        "meaning": MEANINGS[scale.cause],
        "queued_slots": traffic.queued_slots,
        "busy_slots": traffic.busy_slots,
        "arrivals_per_s": traffic.arrivals_per_s,
        "service_s": traffic.service_s,
        "slots": traffic.slots,
    }


def _queue(view: View, now: float) -> dict[str, Any]:
    queue, order = take_queue_snapshot(view, now), view.queue_order
    return {
        "queued": queue.queued,
        "max_requests": queue.max_requests,
        "body_bytes": queue.body_bytes,
        "max_body_bytes": queue.max_body_bytes,
        "by_criticality": queue.by_criticality,
        "longest_wait_s": queue.longest_wait_s,
        "expected_s": queue.expected_s,
        "models": [_model_queue(name, one) for name, one in sorted(queue.by_model.items())],
        "bounds": list(map(_bound, view.bounds)),
        "idle_note": queue.idle_note,
        "order": order.label or "",
        "max_overtaken_s": None if order.label is None else order.max_overtaken_s,
    }


def _model_queue(name: str, queue: ModelQueue) -> dict[str, Any]:
    return {
        "model": name,
        "queued": queue.queued,
        "by_reason": {reason.value: many for reason, many in queue.by_reason.items()},
        "idle_slots": queue.idle_slots,
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
        "is_lifo": limits.is_last_come,
    }


def _envoy(envoy: ConnectedEnvoy) -> dict[str, Any]:
    version = envoy.acknowledged_version
    return {"node_id": envoy.node_id, "acknowledged_version": version if version >= 0 else None}


def _spill(dispatcher: Dispatcher) -> dict[str, Any] | None:
    """What went to higher tiers, if there are any."""
    view, far = dispatcher.view, dispatcher.fleet.far
    if not far:
        return None
    return {
        "running": sum(len(view.slots_at(one.address).leases) for one in far),
        "spilled": view.spilled,
        "closed": view.spill_closed,
    }


def _pool(pool: PoolCounts) -> dict[str, Any]:
    return asdict(pool) | {"slots": slots_json(pool.slots)}


def _processes(found: Processes) -> dict[str, Any]:
    last, cluster = found.last_takeover, found.cluster
    return {
        "fronts": found.fronts,
        "takeovers": found.total_takeovers,
        "takeovers_by_reason": dict(found.takeovers),
        "restarts": dict(found.restarts),
        "members": [asdict(each) for each in found.members],
        "last_takeover": None if last is None else asdict(last),
        "cluster": None if cluster is None else cluster.as_json(),
    }
