"""Envoy's generated configuration as a tree of plain values, and what benchmarks change in it."""

import copy
from typing import Any

Tree = dict[str, Any]


def manager(tree: Tree) -> Tree:
    """The configuration of the HTTP connection manager."""
    (listener,) = tree["static_resources"]["listeners"]
    found: Tree = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return found


def routes(tree: Tree) -> list[Tree]:
    """All routes. The last one is that to the servers."""
    (host,) = manager(tree)["route_config"]["virtual_hosts"]
    found: list[Tree] = host["routes"]
    return found


def http_filter(tree: Tree, name: str) -> Tree:
    found: Tree = next(
        each for each in manager(tree)["http_filters"] if each["name"].endswith(name)
    )
    return found


def processor(tree: Tree) -> Tree:
    """The configuration of ext_proc."""
    config: Tree = http_filter(tree, "ext_proc")["typed_config"]
    inner: Tree = config.get("extension_config", {}).get("typed_config", config)
    return inner


def pass_over_picker(tree: Tree) -> None:
    """Let Envoy balance by itself: its filter is disabled but where a route enables it."""
    for route in routes(tree):
        route.pop("typed_per_filter_config", None)


def split_picker(tree: Tree, cluster: str, port: int) -> None:
    """Let ext_proc go to a cluster of its own at that port, without health checks."""
    clusters = tree["static_resources"]["clusters"]
    own = copy.deepcopy(next(one for one in clusters if one["name"] == cluster))
    own["name"] = own["load_assignment"]["cluster_name"] = "processor"
    own.pop("health_checks", None)
    place = own["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
    place["socket_address"]["port_value"] = port
    clusters.append(own)
    processor(tree)["grpc_service"]["envoy_grpc"]["cluster_name"] = own["name"]
