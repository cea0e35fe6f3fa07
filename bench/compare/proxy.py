"""What a rival is once it runs, and the parts of an Envoy's configuration that rivals share."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.compare.cells import Server
from bench.compare.clients import KEY_HEADER
from bench.rig import Rig
from extproc.demo.port import LOOPBACK
from extproc.demo.process import Child

TIMEOUT_S: Final = 300
FILTERS: Final = "type.googleapis.com/envoy.extensions.filters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """A rival that runs: the port for clients, and the processes that count, the proxy last."""

    port: int
    children: Sequence[Child]


Servers = Mapping[int, Server]
"""By their ports."""
Start = Callable[[Rig, Servers], Awaitable[Proxy]]


def listener(
    port: int, route: Mapping[str, Any], filters: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Envoy's listener for clients, with these filters before the router and one route for all;
    its hash, if the cluster has one, is of clients' key."""
    manager = {
        "@type": f"{FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "clients",
        "stream_idle_timeout": "0s",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {**HASHED, **route}}],
                }
            ]
        },
        "http_filters": [
            *filters,
            {"name": "router", "typed_config": {"@type": f"{FILTERS}.http.router.v3.Router"}},
        ],
    }
    return {
        "name": "clients",
        "address": address(port),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


HASHED: Final = {"hash_policy": [{"header": {"header_name": KEY_HEADER}}]}


def members(cluster: str, weights: Mapping[int, int]) -> dict[str, Any]:
    """The members of an Envoy's cluster by their ports."""
    found = [
        {"endpoint": {"address": address(port)}, "load_balancing_weight": weight}
        for port, weight in weights.items()
    ]
    return {"cluster_name": cluster, "endpoints": [{"lb_endpoints": found}]}


def address(port: int) -> dict[str, Any]:
    """A port of loopback."""
    return {"socket_address": {"address": LOOPBACK, "port_value": port}}
