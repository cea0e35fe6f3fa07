"""The parts to drop into an Envoy that already runs, each with the place where it goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from extproc.envoy_config.bootstrap import served_cluster
from extproc.envoy_config.clusters import clusters, own_clusters
from extproc.envoy_config.filters import ext_proc, first_filters
from extproc.envoy_config.listener import steered_manager
from extproc.envoy_config.options import EnvoyOptions, OptionsError
from extproc.envoy_config.routes import routes
from extproc.envoy_config.yaml_text import comment, render, tree

_OPENING = """
Parts for an Envoy that already runs. Nothing here is a configuration by itself:
each key names a place, and the comment above it says where that is.
Printed by `coxswain config envoy --snippet`; change your settings, not this file.
"""

_MANAGER = """
1. http_connection_manager: the fields to set in the HttpConnectionManager of your listener.
   They keep Envoy from ending requests that wait in the line, make paths plain before the
   routes look at them, take away the headers by which only the picker may steer, tell the
   picker which answers broke off (add that access log to those you have), and answer what
   is no HTTP/1 (put that mapper before those you have).
"""

_FILTERS = """
2. http_filters: put this before your router, and after whatever decides who may come in.
"""

_ROUTES = """
3. routes: into your virtual host, in this order. The blocked ones must stay above any route
   that leads to the servers; the last one is that route, and your own matches may narrow it.
   Its timeouts of 0 are meant: an answer may take hours, and so may the line before it.
"""

_CLUSTERS_DISCOVERY = """
4. clusters: the servers, whose addresses the picker serves, and the picker itself.
   Your bootstrap needs a `node` with an id, or Envoy cannot ask for the addresses.
"""

_CLUSTERS_SERVED = """
4. clusters: the picker itself. The servers' cluster comes from it, by the next part.
"""

_SERVED = """
5. dynamic_resources: into your bootstrap, if it has no `cds_config` of its own; if it has one,
   print this without `--served-cluster`. The picker serves the servers' cluster, `llama`, with
   what their TLS and their keys need, as it changes. Your bootstrap needs a `node` with an id.
   Where your routes stand in the bootstrap, too, set `validate_clusters: false` beside their
   `virtual_hosts`: the cluster is not there yet when Envoy reads them.
"""

_CLUSTERS_ORIGINAL_DST = """
4. clusters: the servers, each named by an answer of the picker, and the picker itself.
"""

_TRACING = """
   The collector's cluster is here too; add a tracer of your own to use it.
"""


def snippet(options: EnvoyOptions, *, serves_cluster: bool = False) -> str:
    """YAML with four keys: `http_connection_manager`, `http_filters`, `routes`, `clusters`.

    The servers' cluster is among them: an Envoy learns clusters from one place, which may be taken.
    For one where it is not, `serves_cluster` puts a fifth in its place, `dynamic_resources`, by
    which the picker serves it. Raises `OptionsError` where the mode knows no such thing.
    """
    options = replace(options, serves_cluster=serves_cluster)
    if serves_cluster and not options.has_served_cluster:
        raise OptionsError("the picker serves the servers' cluster only with discovery")
    last = _CLUSTERS_DISCOVERY if options.has_discovery else _CLUSTERS_ORIGINAL_DST
    if serves_cluster:
        last = _CLUSTERS_SERVED
    if options.tracing is not None:
        last += _TRACING.lstrip("\n")
    parts: list[tuple[str, str, Any]] = [
        (_MANAGER, "http_connection_manager", tree(steered_manager(options))),
        (
            _FILTERS,
            "http_filters",
            [tree(each) for each in (*first_filters(options), ext_proc(options))],
        ),
        (_ROUTES, "routes", [tree(route) for route in routes(options)]),
        (
            last,
            "clusters",
            [tree(each) for each in (own_clusters if serves_cluster else clusters)(options)],
        ),
    ]
    if serves_cluster:
        parts.append((_SERVED, "dynamic_resources", tree(served_cluster(options))))
    blocks = [f"{comment(text)}{render({key: content})}" for text, key, content in parts]
    return "\n".join([comment(_OPENING), *blocks])
