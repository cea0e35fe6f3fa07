"""A listener for Envoy's own metrics.

The admin port can stop Envoy and shows its configuration with all keys, so it stays on loopback;
this listener passes on one of its pages, for Prometheus and for the picker.
"""

from envoy_data_plane.envoy.config.cluster.v3 import Cluster
from envoy_data_plane.envoy.config.core.v3 import HttpProtocolOptions
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.config.route.v3 import (
    HeaderMatcher,
    Route,
    RouteAction,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
)
from envoy_data_plane.envoy.type.matcher.v3 import StringMatcher

from extproc.envoy_config.clusters import http1_cluster
from extproc.envoy_config.filters import router
from extproc.envoy_config.messages import address, seconds, typed
from extproc.envoy_config.options import EnvoyOptions, HostPort

PATH = "/stats/prometheus"
CLUSTER = "envoy-admin"


def metrics_listener(options: EnvoyOptions) -> list[Listener]:
    """The listener, where the options want it: GET of one path."""
    if options.envoy.metrics is None:
        return []
    is_get = HeaderMatcher(name=":method", string_match=StringMatcher(exact="GET"))
    route = Route(
        name="metrics",
        match=RouteMatch(path=PATH, headers=[is_get]),
        route=RouteAction(cluster=CLUSTER, timeout=seconds(10)),
    )
    manager = HttpConnectionManager(
        stat_prefix="metrics",
        normalize_path=True,
        request_headers_timeout=seconds(options.envoy.request_headers_timeout_s),
        stream_idle_timeout=seconds(30),
        common_http_protocol_options=HttpProtocolOptions(
            idle_timeout=seconds(options.envoy.connection_idle_timeout_s), max_headers_count=100
        ),
        route_config=RouteConfiguration(
            name="metrics",
            virtual_hosts=[VirtualHost(name="metrics", domains=["*"], routes=[route])],
        ),
        http_filters=[router()],
    )
    name = "envoy.filters.network.http_connection_manager"
    chain = FilterChain(filters=[Filter(name=name, typed_config=typed(manager))])
    return [
        Listener(
            name="metrics",
            address=address(HostPort.parse(options.envoy.metrics)),
            filter_chains=[chain],
            ignore_global_conn_limit=True,
        )
    ]


def metrics_cluster(options: EnvoyOptions) -> list[Cluster]:
    """Envoy's own admin port, where the options want the listener."""
    if options.envoy.metrics is None:
        return []
    return [http1_cluster(CLUSTER, HostPort.parse(options.envoy.admin).reached)]
