"""The state of one Envoy's stream."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from extproc.xds.subscription import Subscription


@dataclass(slots=True)
class EnvoyStream:
    """`is_counted` while it wants endpoints; `due` wakes its writer."""

    number: int
    abilities: frozenset[str]
    node_id: str = ""
    subscription: Subscription = field(default_factory=Subscription)
    is_counted: bool = False
    due: asyncio.Event = field(default_factory=asyncio.Event)
