"""Envoy's complete bootstrap configuration."""

from dataclasses import replace

import betterproto2
from envoy_data_plane.envoy.config.bootstrap.v3 import (
    Admin,
    Bootstrap,
    BootstrapDynamicResources,
    BootstrapStaticResources,
)
from envoy_data_plane.envoy.config.core.v3 import Node
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

from extproc.envoy_config.clusters import clusters, discovery, own_clusters
from extproc.envoy_config.listener import listener
from extproc.envoy_config.messages import address, seconds, typed
from extproc.envoy_config.metrics import metrics_cluster, metrics_listener
from extproc.envoy_config.options import EnvoyOptions, HostPort

HEAP = "envoy.resource_monitors.fixed_heap"
CONNECTIONS = "envoy.resource_monitors.global_downstream_max_connections"


def bootstrap_message(options: EnvoyOptions) -> Bootstrap:
    """Node, admin port, one listener, its clusters and the bounds of it all."""
    if options.has_served_cluster:
        static, dynamic = own_clusters(options), served_cluster(options)
    else:
        static, dynamic = clusters(options), None
    return Bootstrap(
        node=Node(id="coxswain-envoy", cluster="coxswain"),
        admin=Admin(
            address=address(HostPort.parse(options.envoy.admin)), ignore_global_conn_limit=True
        ),
        static_resources=BootstrapStaticResources(
            listeners=[listener(options), *metrics_listener(options)],
            clusters=[*static, *metrics_cluster(options)],
        ),
        dynamic_resources=dynamic,
        overload_manager=overload_manager(options),
    )


def served_cluster(options: EnvoyOptions) -> BootstrapDynamicResources:
    """The picker serves the llama-servers' cluster, with the settings for TLS and keys; it learns
    from here only what the listener does for them."""
    gateway = replace(options, tls_profiles=(), injects_keys=options.keeps_authorization)
    return BootstrapDynamicResources(cds_config=discovery(gateway))


def overload_manager(options: EnvoyOptions) -> OverloadManager:
    """Near the heap's bound, freed memory is given back and new requests get 503."""
    connections = DownstreamConnectionsConfig(
        max_active_downstream_connections=options.envoy.max_connections
    )
    monitors = [_monitor(CONNECTIONS, connections)]
    actions: list[OverloadAction] = []
    if options.envoy.max_heap_bytes:
        heap = FixedHeapConfig(max_heap_size_bytes=options.envoy.max_heap_bytes)
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
