"""What the admin service needs, around a core without a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from extproc.admin import AdminDependencies
from extproc.admin.keepers import KeepersDependencies, KeepersService
from extproc.app.placement import Placement
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.placement.swaps import PlacementOptions
from extproc.core.scheduler.dispatcher import Dispatcher


def admin_dependencies(
    dispatcher: Dispatcher, clock: Callable[[], float], **others: Any
) -> AdminDependencies:
    """Those of `dispatcher`, with `others` in place of what stands for nothing here."""
    nothing: dict[str, Any] = {
        "registry": ExchangeRegistry(),
        "settings": cast("Any", None),
        "added": cast("Any", None),
        "explain": cast("Any", None),
        "envoys": list,
        "address_rejection": lambda _address, _peer: "",
        "obstacles": tuple,
        "problems": tuple,
        "outcomes": dict,
        "bypassed": int,
        "takes_actions": bool,
        "version": "1.2.3",
        "started_at": 0.0,
        "keepers": KeepersService(KeepersDependencies(clock=clock)),
        "placement": Placement(dispatcher, lambda *_: None, clock, PlacementOptions()),
    }
    return AdminDependencies(dispatcher=dispatcher, clock=clock, **(nothing | others))
