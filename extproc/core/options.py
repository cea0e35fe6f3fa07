"""The options of the dispatcher: records that stand beside the code that uses them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from extproc.core.bounds import BoundOptions
from extproc.core.client_limits import ClientLimit
from extproc.core.fleet.endpoint import WakeOptions
from extproc.core.fleet.health import HealthOptions
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.outliers.outlier_detection import OutlierOptions
from extproc.core.queue.aging import Aging
from extproc.core.queue.flow_order import ARRIVAL_ORDER, QueueOrder
from extproc.core.queue.limits import QueueLimits
from extproc.core.scaling.wanted import ScaleOptions
from extproc.core.selection.context_fit import ContextFit
from extproc.core.selection.ranking import Fallbacks
from extproc.core.slots.ledger import DrainingCaps
from extproc.core.spill import NO_SPILL, SpillOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherOptions:
    """Each comes from the settings, which docs/settings.md describes for operators."""

    queue: QueueLimits = field(default_factory=QueueLimits)
    fallbacks: Fallbacks = field(default_factory=Fallbacks)
    health: HealthOptions = field(default_factory=HealthOptions)
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
