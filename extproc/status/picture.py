"""The state of everything at one moment, as a tree of plain values for `/status`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from extproc.core.line_sight import look_at_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from extproc.core.account import Account
    from extproc.core.dispatcher import Dispatcher
    from extproc.core.endpoint import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedEnvoy:
    """One Envoy that subscribed to the fleet; the version is None before its first one."""

    node_id: str
    acknowledged_version: int | None


def picture(
    dispatcher: Dispatcher,
    *,
    known_exchanges: int,
    envoys: Iterable[ConnectedEnvoy],
    outcomes: Mapping[str, int],
    now: float,
) -> dict[str, Any]:
    """What `/status` shows. O(endpoints).

    `known_exchanges` are those that run or wait, `outcomes` how many ended in which way.
    """
    line = look_at_line(dispatcher, now)
    endpoints = {
        str(endpoint.address): _endpoint(endpoint, dispatcher.ledger.account(endpoint.address), now)
        for endpoint in dispatcher.fleet
    }
    return {
        "slots": {
            kind: sum(endpoint["slots"][kind] for endpoint in endpoints.values())
            for kind in ("total", "leased", "foreign", "idle")
        },
        "endpoints": endpoints,
        "queue": {
            "waiting": line.waiting,
            "max": line.max_waiting,
            "by_class": line.by_class,
            "longest_wait_s": _rounded(line.longest_wait_s),
            "expected_s": _rounded(line.expected_s),
        },
        "running": max(0, known_exchanges - line.waiting),
        "outcomes": dict(outcomes),
        "fleet_version": dispatcher.fleet.membership().version,
        "envoys": [
            {"node_id": envoy.node_id, "acknowledged_version": envoy.acknowledged_version}
            for envoy in envoys
        ],
    }


def _endpoint(endpoint: Endpoint, account: Account, now: float) -> dict[str, Any]:
    return {
        "name": endpoint.spec.name,
        "hostname": endpoint.spec.hostname,
        "health": endpoint.health.value,
        "intent": endpoint.intent.value,
        "is_removed": endpoint.is_removed,
        "is_routable": endpoint.is_routable,
        "is_fresh": endpoint.is_fresh,
        "slots": {
            "total": account.slots,
            "leased": account.leased_slots,
            "foreign": account.foreign_slots,
            "idle": account.free_slots,
        },
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
