"""The options of the dispatcher, which come from the settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from extproc.core.bounds import BoundOptions
from extproc.core.client_limits import ClientLimit
from extproc.core.fleet.endpoint import WakeOptions
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.outliers.outlier_detection import OutlierOptions
from extproc.core.queue.aging import Aging
from extproc.core.queue.flow_order import ARRIVAL_ORDER, QueueOrder
from extproc.core.scaling.wanted import ScaleOptions
from extproc.core.selection.context_fit import ContextFit
from extproc.core.slots.ledger import DrainingCaps
from extproc.core.spill import NO_SPILL, SpillOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherOptions:
    """Bounds of the dispatcher; docs/settings.md describes them for operators."""

    queue_max_requests: int = 1024
    queue_max_body_bytes: int = 1024 * 1024 * 1024
    fallbacks: int = 2
    failures_to_down: int = 3
    stale_after_s: float = 6.0
    stale_per_endpoint_s: float = 0.0
    draining_caps: DrainingCaps = field(default_factory=DrainingCaps)
    resolver: ResolverOptions = field(default_factory=ResolverOptions)
    aging: Aging = field(default_factory=Aging)
    outliers: OutlierOptions = field(default_factory=OutlierOptions)
    order: QueueOrder = ARRIVAL_ORDER
    scale: ScaleOptions = field(default_factory=ScaleOptions)
    context_fit: ContextFit = ContextFit.REJECT
    bounds: BoundOptions = field(default_factory=BoundOptions)
    client_limits: Mapping[str, ClientLimit] = field(default_factory=dict)
    """By client's name; the dispatcher holds back the requests of its sessions and its flows."""
    spill: SpillOptions = NO_SPILL
    machines: Mapping[str, WakeOptions] = field(default_factory=dict)
    """How machines with a keeper are woken and put to sleep, by their names."""
