"""Envoy's complete bootstrap configuration."""

from dataclasses import replace

from envoy_data_plane.envoy.config.bootstrap.v3 import (
    Admin,
    Bootstrap,
    BootstrapDynamicResources,
    BootstrapStaticResources,
)
from envoy_data_plane.envoy.config.core.v3 import Node

from extproc.envoy_config.clusters import clusters, discovery, own_clusters
from extproc.envoy_config.listener import listener
from extproc.envoy_config.messages import address
from extproc.envoy_config.metrics import metrics_cluster, metrics_listener
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.overload import overload_manager


def bootstrap_message(options: EnvoyOptions) -> Bootstrap:
    """Node, admin port, one listener, its clusters and the bounds of it all."""
    if options.has_served_cluster:
        static, dynamic = own_clusters(options), served_cluster(options)
    else:
        static, dynamic = clusters(options), None
    return Bootstrap(
        node=Node(id="coxswain-envoy", cluster="coxswain"),
        admin=Admin(address=address(options.admin), ignore_global_conn_limit=True),
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
