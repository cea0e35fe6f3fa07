"""The parts to add to an existing Envoy, each with the place where it belongs."""

from dataclasses import replace
from typing import Any

from extproc.envoy_config.access_log import report_interval
from extproc.envoy_config.bootstrap import served_cluster
from extproc.envoy_config.clusters import clusters, own_clusters
from extproc.envoy_config.filters import ext_proc, first_filters, removals
from extproc.envoy_config.listener import steered_manager
from extproc.envoy_config.options import EnvoyOptions, OptionsError
from extproc.envoy_config.routes import routes
from extproc.envoy_config.usage import usage_filters
from extproc.envoy_config.yaml_text import comment, render, tree

_OPENING = """
Parts to add to the configuration of an existing Envoy. They are not a configuration by
themselves: the comment above each key says where it belongs.
Printed by `coxswain config envoy --snippet`; change your settings, not this file.

A listener of its own is the better choice for Coxswain: copy the one that `coxswain config envoy`
prints without --snippet, and add the clusters below. Then nothing here concerns your routes. On a
listener that has other routes, this holds for all of them:
- Requests that Envoy rejects before they have a route (too many headers, malformed HTTP/1) get
  errors in the format of the first two mappers.
- Access logs are also written in between, if part 1 says so.
- In the virtual host, requests that had no route until now get 403 `blocked-path`, or go to the
  servers. Give the routes below a virtual host with a domain of its own if they should not.
And this is not as on a listener of its own: paths with `//`, dot segments, backslashes or escaped
slashes are rejected and not normalised, because Envoy would do that to all routes. And if your
listener has `use_remote_address: true`, Envoy gives each request an id of its own, unless you add
`preserve_external_request_id: true` for all routes: clients that name their request in
x-request-id, to ask for its place at /queue/, need it.
"""

_PERIODIC = """
   access_log_flush_interval holds for all access logs of the listener: each of yours also writes a
   line about every running request at this interval. Add
   `filter: {log_type_filter: {types: [DownstreamPeriodic], exclude: true}}` to yours, in an
   and_filter if they already have a filter.
"""

_MANAGER = """
1. http_connection_manager: the fields to set in the HttpConnectionManager of your listener.
   They report cut-off responses to the picker (add these access logs to yours), and add a reason
   to Envoy's rejections (put these mappers before yours).
"""

_FILTERS = """
2. http_filters: put these before your router, and after any filter that authenticates clients.
   The routes below enable the `disabled` filters with their typed_per_filter_config: your other
   routes are not affected. The first removes the headers that only the picker may set.
"""

_ROUTES = """
3. routes: add them to your virtual host, in this order, after all routes of your own: those
   named `closed...` and `blocked...` match every path that is not open on the servers. The last
   one leads to the servers, and you can restrict its match.
   Its timeouts of 0 are intended: a response may take hours, and so may the queue. If you replace
   this route by your own, keep all of its fields: the name, both timeouts, retry_policy,
   request_body_buffer_limit and typed_per_filter_config. Without the last, Envoy neither asks the
   picker nor authenticates clients.
"""

_UNSTREAMED = """
   Those named `llama-unstreamed...` lead there, too. With `envoy.reuse_connections`, every other
   route to the cluster `llama` needs the last one's `connection: close`: llama-server ends the
   connection of a stream without saying so, and the next request on it would be lost.
"""

_UPLOADS = """
   Those named `llama-...` before it lead there, too. If you restrict its match, restrict theirs:
   they are for requests with long bodies, and for those that the picker has decided.
"""

_CLUSTERS_DISCOVERY = """
4. clusters: the servers, whose addresses the picker serves, and the picker itself.
   Your bootstrap needs a `node` with an id; without it Envoy cannot subscribe to the addresses.
"""

_CLUSTERS_SERVED = """
4. clusters: the picker itself. The servers' cluster comes from the picker, see the next part.
"""

_SERVED = """
5. dynamic_resources: add it to your bootstrap if that has no `cds_config`; otherwise print this
   without `--served-cluster`. The picker serves the servers' cluster, `llama`, with their TLS and
   keys, and its changes. Your bootstrap needs a `node` with an id. If your routes are also in the
   bootstrap, set `validate_clusters: false` beside their `virtual_hosts`: Envoy reads them before
   the cluster exists.
"""

_CLUSTERS_ORIGINAL_DST = """
4. clusters: the servers, one of which each response of the picker names, and the picker itself.
"""

_TRACING = """
   The collector's cluster is included; add a tracer to use it.
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
    if options.envoy.tracing is not None:
        last += _TRACING.lstrip("\n")
    manager = _MANAGER
    if report_interval(options) is not None:
        manager += _PERIODIC.lstrip("\n")
    ways = _ROUTES
    if options.asks_again:
        ways += _UPLOADS.lstrip("\n")
    if options.envoy.reuse_connections:
        ways += _UNSTREAMED.lstrip("\n")
    parts: list[tuple[str, str, Any]] = [
        (manager, "http_connection_manager", tree(steered_manager(options))),
        (
            _FILTERS,
            "http_filters",
            [
                tree(each)
                for each in (
                    removals(),
                    *first_filters(options),
                    *usage_filters(options),
                    *ext_proc(options),
                )
            ],
        ),
        (ways, "routes", [tree(route) for route in routes(options, is_shared=True)]),
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
