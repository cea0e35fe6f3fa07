"""Envoy's overload manager: reject new requests, keep running ones."""

import betterproto2
from envoy_data_plane.envoy.config.overload.v3 import (
    OverloadAction,
    OverloadManager,
    ResourceMonitor,
    ThresholdTrigger,
    Trigger,
)
from envoy_data_plane.envoy.extensions.resource_monitors.downstream_connections.v3 import (
    DownstreamConnectionsConfig,
)
from envoy_data_plane.envoy.extensions.resource_monitors.fixed_heap.v3 import FixedHeapConfig

from extproc.envoy_config.messages import seconds, typed
from extproc.envoy_config.options import EnvoyOptions

HEAP = "envoy.resource_monitors.fixed_heap"
CONNECTIONS = "envoy.resource_monitors.global_downstream_max_connections"


def overload_manager(options: EnvoyOptions) -> OverloadManager:
    """Near the heap's bound, freed memory is given back and new requests get 503."""
    connections = DownstreamConnectionsConfig(
        max_active_downstream_connections=options.max_connections
    )
    monitors = [_monitor(CONNECTIONS, connections)]
    actions: list[OverloadAction] = []
    if options.max_heap_bytes:
        heap = FixedHeapConfig(max_heap_size_bytes=options.max_heap_bytes)
        monitors.append(_monitor(HEAP, heap))
        actions = [
            _action("envoy.overload_actions.shrink_heap", 0.90),
            _action("envoy.overload_actions.stop_accepting_requests", 0.95),
        ]
    return OverloadManager(
        refresh_interval=seconds(0.25), resource_monitors=monitors, actions=actions
    )


def _monitor(name: str, message: betterproto2.Message) -> ResourceMonitor:
    return ResourceMonitor(name=name, typed_config=typed(message))


def _action(name: str, share: float) -> OverloadAction:
    trigger = Trigger(name=HEAP, threshold=ThresholdTrigger(value=share))
    return OverloadAction(name=name, triggers=[trigger])
