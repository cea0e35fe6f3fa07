"""The data sources of the status pages."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from extproc.core.scheduler.fleet_health import FleetHealth


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusSources:
    """Where the pages get their contents.

    `health` are the slots of the whole fleet. `status` gives a tree of plain values for JSON;
    `obstacles` the reasons why the picker is not ready, none when it is; `activity` a tree of what
    passes, for the address of one endpoint or for "" of all; `metrics` the Prometheus text, which
    may take a while.
    """

    health: Callable[[], FleetHealth]
    status: Callable[[], dict[str, Any]]
    activity: Callable[[str], dict[str, Any]]
    obstacles: Callable[[], tuple[str, ...]]
    metrics: Callable[[], Awaitable[bytes]]
