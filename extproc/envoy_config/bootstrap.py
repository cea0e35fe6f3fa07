"""The whole of Envoy's configuration, ready to run."""

from __future__ import annotations

from envoy_data_plane.envoy.config.bootstrap.v3 import (
    Admin,
    Bootstrap,
    BootstrapStaticResources,
)
from envoy_data_plane.envoy.config.core.v3 import Node

from extproc.envoy_config.clusters import clusters
from extproc.envoy_config.listener import listener
from extproc.envoy_config.messages import address
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.overload import overload_manager


def bootstrap_message(options: EnvoyOptions) -> Bootstrap:
    """Node, admin port, one listener, its clusters and the bounds of it all."""
    return Bootstrap(
        node=Node(id="coxswain-envoy", cluster="coxswain"),
        admin=Admin(address=address(options.admin), ignore_global_conn_limit=True),
        static_resources=BootstrapStaticResources(
            listeners=[listener(options)], clusters=clusters(options)
        ),
        overload_manager=overload_manager(options),
    )
