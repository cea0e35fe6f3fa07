"""The state of one Envoy's stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from extproc.xds.subscription import Subscription

if TYPE_CHECKING:
    from extproc.transport import Call


@dataclass(slots=True)
class EnvoyStream:
    """`is_counted` while it wants endpoints."""

    number: int
    call: Call
    abilities: frozenset[str]
    node_id: str = ""
    subscription: Subscription = field(default_factory=Subscription)
    is_counted: bool = False
