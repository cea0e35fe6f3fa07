"""The parts to drop into an Envoy that already runs, each with the place where it goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from envoy_data_plane.envoy.config.route.v3 import Route

from extproc.envoy_config.access_log import report_interval
from extproc.envoy_config.bootstrap import served_cluster
from extproc.envoy_config.clusters import clusters, own_clusters
from extproc.envoy_config.credentials import with_check_of_clients
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
   picker which answers broke off (add those access logs to those you have), and put into words
   what Envoy refuses (put those mappers before yours: all but the first two are about the
   routes below alone, by their names).
"""

_PERIODIC = """
   access_log_flush_interval holds for all access logs: each writes about every request that still
   runs, so often. Give yours `filter: {log_type_filter: {types: [DownstreamPeriodic], exclude:
   true}}`, in an and_filter with the one that it may have.
"""

_FILTERS = """
2. http_filters: put this before your router, and after whatever decides who may come in. What is
   `disabled` here the routes below switch on, by their typed_per_filter_config: your other routes
   stay as they are.
"""

_ROUTES = """
3. routes: into your virtual host, in this order, below all routes of your own: those named
   `closed...` take every path that is not open on the servers. The last one leads to them, and
   your own matches may narrow it.
   Its timeouts of 0 are meant: an answer may take hours, and so may the line before it. A route
   of your own in its place needs all that it has: the name, both timeouts, retry_policy,
   request_body_buffer_limit and typed_per_filter_config. Without the last the picker is never
   asked, and no client is checked.
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
    manager = _MANAGER
    if report_interval(options) is not None:
        manager += _PERIODIC.lstrip("\n")
    parts: list[tuple[str, str, Any]] = [
        (manager, "http_connection_manager", tree(steered_manager(options))),
        (
            _FILTERS,
            "http_filters",
            [
                tree(each)
                for each in (*first_filters(options, on_named_routes=True), ext_proc(options))
            ],
        ),
        (_ROUTES, "routes", [tree(route) for route in _routes(options)]),
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


def _routes(options: EnvoyOptions) -> list[Route]:
    """Those of a whole configuration, and who may take them."""
    found = routes(options)
    return [with_check_of_clients(route) for route in found] if options.client_keys else found
