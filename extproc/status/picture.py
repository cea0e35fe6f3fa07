"""The state of everything at one moment, as a tree of plain values for `/status`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extproc.core.account import Account
    from extproc.core.dispatcher import Dispatcher
    from extproc.core.endpoint import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectedEnvoy:
    """One Envoy that subscribed to the fleet; the version is None before its first one."""

    node_id: str
    acknowledged_version: int | None


def picture(
    dispatcher: Dispatcher, *, known_exchanges: int, envoys: Iterable[ConnectedEnvoy], now: float
) -> dict[str, Any]:
    """What `/status` shows. `known_exchanges` are those that run or wait. O(endpoints)."""
    waiting = len(dispatcher.line)
    return {
        "endpoints": {
            str(endpoint.address): _endpoint(
                endpoint, dispatcher.ledger.account(endpoint.address), now
            )
            for endpoint in dispatcher.fleet
        },
        "queue": {"waiting": waiting, "max": dispatcher.options.max_queued},
        "running": max(0, known_exchanges - waiting),
        "fleet_version": dispatcher.fleet.membership().version,
        "envoys": [
            {"node_id": envoy.node_id, "acknowledged_version": envoy.acknowledged_version}
            for envoy in envoys
        ],
    }


def _endpoint(endpoint: Endpoint, account: Account, now: float) -> dict[str, Any]:
    observed_at = endpoint.observed_at
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
        "observed_age_s": None if observed_at is None else round(now - observed_at, 3),
        "issues": [
            {"code": issue.code, "message": issue.message, "remedy": issue.remedy}
            for issue in endpoint.issues
        ],
    }
