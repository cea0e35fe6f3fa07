"""The upstream sides: the llama-servers, the picker, and a collector where one is named."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    Cluster,
    ClusterCommonLbConfig,
    ClusterDiscoveryType,
    ClusterEdsClusterConfig,
    ClusterLbPolicy,
    ClusterOriginalDstLbConfig,
    OutlierDetection,
    UpstreamConnectionOptions,
)
from envoy_data_plane.envoy.config.core.v3 import (
    ApiConfigSource,
    ApiConfigSourceApiType,
    ApiVersion,
    BackoffStrategy,
    ConfigSource,
    HealthCheck,
    HealthCheckGrpcHealthCheck,
    HealthCheckHttpHealthCheck,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    HttpProtocolOptions,
    KeepaliveSettings,
    RetryPolicy,
    RoutingPriority,
    TcpKeepalive,
)
from envoy_data_plane.envoy.config.endpoint.v3 import (
    ClusterLoadAssignment,
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions as UpstreamHttpProtocolOptions,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.v3 import Int64Range, Percent
from envoy_data_plane.google.protobuf import Any

from extproc.core.address import is_ip
from extproc.envoy_config import names
from extproc.envoy_config.filters import last_filters
from extproc.envoy_config.load_balancing import destination_key, override_host
from extproc.envoy_config.messages import NEVER, address, grpc_service, seconds, typed
from extproc.envoy_config.options import EnvoyOptions, HostPort, TlsProfile
from extproc.envoy_config.tracing import COLLECTOR_CLUSTER
from extproc.envoy_config.transport import abilities, picker_socket, socket_matches
from extproc.security.trust import Trust
from extproc.settings import Settings

UNBOUNDED = 1_000_000
"""More than ever runs: the picker limits and queues requests, not Envoy's circuit breakers."""

PING_INTERVAL_S: Final = 2.0
AWAITED_S: Final = 0.25
"""How often Envoy checks a picker that it cannot reach."""
LEAST_SILENCE_S: Final = 3.0

COLLECTOR_KEEPALIVE = KeepaliveSettings(interval=seconds(10), timeout=seconds(5))

ONE_REQUEST: Final = HttpProtocolOptions(max_requests_per_connection=1)
"""llama-server hangs up after each stream without saying so: a request that was sent before Envoy
heard of it would be lost (docs/decisions/0035-a-connection-for-each-request.md)."""
REUSED: Final = HttpProtocolOptions(max_requests_per_connection=90, idle_timeout=seconds(1))
"""For an Envoy whose routes end the connection with each request that may be streamed. llama-server
keeps a connection for 100 requests and 5 s: Envoy lets go before it, also on a machine that is
stalled for seconds (docs/decisions/0260-connections-used-again.md)."""


def clusters(options: EnvoyOptions) -> list[Cluster]:
    """All clusters of the configuration."""
    return [llama(options), *own_clusters(options)]


def own_clusters(options: EnvoyOptions) -> list[Cluster]:
    """All but the llama-servers', which the picker may serve."""
    found = [picker(options)]
    if options.asks_again:
        found.append(picker_again(options))
    if options.status is not None:
        # Of the picker's HTTP pages clients reach the queue's alone.
        pages = (options.status, *options.other_status)
        # A connection that is kept would make way for others, with the request just sent on it.
        found.append(http1_cluster(names.STATUS_CLUSTER, *pages, common=ONE_REQUEST))
    if options.envoy.batches is not None:
        place = HostPort.parse(options.envoy.batches)
        found.append(http1_cluster(names.BATCHES_CLUSTER, place))
    if options.envoy.tracing is not None:
        collector = HostPort.parse(options.envoy.tracing)
        found.append(_grpc_cluster(COLLECTOR_CLUSTER, COLLECTOR_KEEPALIVE, collector))
    return found


def llama(options: EnvoyOptions) -> Cluster:
    """The llama-servers, by the way of learning them that `options.mode` names."""
    common = Cluster(
        name=names.LLAMA_CLUSTER,
        connect_timeout=seconds(options.envoy.connect_timeout_s),
        circuit_breakers=_unbounded(),
        upstream_connection_options=UpstreamConnectionOptions(
            tcp_keepalive=TcpKeepalive(keepalive_probes=3, keepalive_time=30, keepalive_interval=10)
        ),
        typed_extension_protocol_options=_protocol(
            HttpProtocolOptionsExplicitHttpConfig(http_protocol_options=Http1ProtocolOptions()),
            REUSED if options.envoy.reuse_connections else ONE_REQUEST,
            last_filters(options),
        ),
    )
    return _eds(common, options) if options.has_discovery else _original_dst(common)


def served_llama(
    settings: Settings, trusts: Iterable[Trust], *, injects_keys: bool, reuses: bool
) -> bytes:
    """The llama-servers' cluster as the picker serves it to an Envoy, in wire format.

    Its listener decides, and not the picker's own settings: `injects_keys` says whether it keeps
    the clients' own keys apart, `reuses` whether its routes allow connections to be used again.
    """
    profiles = tuple(
        TlsProfile(name=trust.profile, server_name=trust.ip, ca_pem=trust.ca_pem)
        for trust in trusts
    )
    options = EnvoyOptions(
        envoy=settings.envoy.model_copy(update={"reuse_connections": reuses}),
        server_prefix=settings.scraper.path_prefix,
        injects_keys=injects_keys,
        tls_profiles=profiles,
    )
    return bytes(llama(options))


def _eds(cluster: Cluster, options: EnvoyOptions) -> Cluster:
    cluster.type = ClusterDiscoveryType.EDS
    cluster.eds_cluster_config = ClusterEdsClusterConfig(
        service_name=names.LLAMA_CLUSTER, eds_config=discovery(options)
    )
    cluster.load_balancing_policy = override_host()
    # Without this, half of the servers down would send traffic to all of them again.
    cluster.common_lb_config = ClusterCommonLbConfig(
        healthy_panic_threshold=Percent(value=0.0),
        update_merge_window=NEVER,  # else a server that got healthy is used a second later
    )
    cluster.health_checks = [_server_health(options)]
    # The picker takes an endpoint out of the list when it is drained, not before.
    cluster.ignore_health_on_host_removal = True
    cluster.transport_socket_matches = socket_matches(options.tls_profiles)
    return cluster


def _original_dst(cluster: Cluster) -> Cluster:
    """The address comes from the picker's metadata, which clients cannot set."""
    cluster.type = ClusterDiscoveryType.ORIGINAL_DST
    cluster.lb_policy = ClusterLbPolicy.CLUSTER_PROVIDED
    cluster.original_dst_lb_config = ClusterOriginalDstLbConfig(metadata_key=destination_key())
    return cluster


def discovery(options: EnvoyOptions) -> ConfigSource:
    """The picker serves it on its gRPC port; a picker that restarts is found in seconds."""
    soon = RetryPolicy(
        retry_back_off=BackoffStrategy(base_interval=seconds(0.1), max_interval=seconds(0.5))
    )
    return ConfigSource(
        resource_api_version=ApiVersion.V3,
        initial_fetch_timeout=seconds(options.envoy.discovery_timeout_s),
        api_config_source=ApiConfigSource(
            api_type=ApiConfigSourceApiType.GRPC,
            transport_api_version=ApiVersion.V3,
            grpc_services=[grpc_service(names.PICKER_CLUSTER, soon, abilities(options))],
            set_node_on_first_message_only=True,
        ),
    )


def _server_health(options: EnvoyOptions) -> HealthCheck:
    """Keeps the fallback policy off dead and loading servers; it never wakes a sleeping one.

    The picker's own choice is not bound by it: it knows a new server before its first check.
    """
    interval = seconds(options.envoy.health_interval_s)
    return HealthCheck(
        timeout=interval,
        interval=interval,
        no_traffic_interval=interval,
        unhealthy_interval=seconds(min(1.0, options.envoy.health_interval_s)),
        interval_jitter_percent=10,
        unhealthy_threshold=2,
        healthy_threshold=1,
        reuse_connection=False,  # the server would have hung up in between
        # Ollama has no such path, and others want a key there: who answers at all is alive.
        http_health_check=HealthCheckHttpHealthCheck(
            path=f"{options.server_prefix}/health",
            expected_statuses=[Int64Range(start=200, end=500)],
        ),
    )


def picker(options: EnvoyOptions) -> Cluster:
    """The picker's gRPC port: ext_proc, discovery and access log stream. A dead one fails fast."""
    others = [HostPort.parse(one) for one in options.envoy.other_pickers if options.has_fronts]
    silence_s = _longest_silence_s(options)
    keepalive = KeepaliveSettings(interval=seconds(PING_INTERVAL_S), timeout=seconds(silence_s))
    cluster = _grpc_cluster(names.PICKER_CLUSTER, keepalive, options.picker, *others)
    if options.has_fronts:
        # A front that is lost takes its streams with it, and others serve at the same address: its
        # loss is no reason to leave them. Their message timeout is long: this is what ends the
        # streams of a picker that hangs.
        cluster.close_connections_on_host_health_failure = True
        if others:
            cluster.lb_policy = ClusterLbPolicy.LEAST_REQUEST
    else:
        cluster.outlier_detection = _gone_at_once()
    if options.picker_tls is not None:
        cluster.transport_socket = picker_socket(options.picker_tls)
    cluster.connect_timeout = seconds(options.envoy.connect_timeout_s)
    cluster.common_lb_config = ClusterCommonLbConfig(
        healthy_panic_threshold=Percent(value=0.0),
        update_merge_window=NEVER,  # else its loss is acted on up to a second later
    )
    cluster.health_checks = [
        HealthCheck(
            timeout=seconds(1),
            interval=seconds(1),
            # One that is awaited is found soon, also by an Envoy that has never reached it.
            no_traffic_interval=seconds(AWAITED_S),
            unhealthy_interval=seconds(AWAITED_S),
            unhealthy_threshold=ceil(silence_s),
            healthy_threshold=1,
            grpc_health_check=HealthCheckGrpcHealthCheck(service_name=names.EXT_PROC_SERVICE),
        )
    ]
    return cluster


def picker_again(options: EnvoyOptions) -> Cluster:
    """The same for requests whose stream was lost, each with a connection of its own: at that
    moment Envoy would still take the lost one."""
    protocol = HttpProtocolOptionsExplicitHttpConfig(http2_protocol_options=Http2ProtocolOptions())
    return replace(
        picker(options),
        name=names.PICKER_AGAIN_CLUSTER,
        typed_extension_protocol_options=_protocol(protocol, ONE_REQUEST),
    )


def _longest_silence_s(options: EnvoyOptions) -> float:
    """After how many seconds without an answer to a ping the picker is taken for one that is
    frozen, or whose host is gone. In full duplex nothing else bounds the wait for it.

    Not before the message timeout of a message that came just before the next ping: who lets Envoy
    wait longer for a picker whose event loop is blocked would lose its connection meanwhile.
    """
    if options.has_fronts:
        return LEAST_SILENCE_S  # another front answers
    return max(LEAST_SILENCE_S, PING_INTERVAL_S + options.message_timeout_s)


def _gone_at_once(members: int = 1) -> OutlierDetection:
    """One lost or refused connection takes the picker out, until a health check succeeds.

    Without it Envoy would go on to open streams, and in full duplex to give them bodies of
    which it keeps no copy, until three health checks had failed.
    """
    return OutlierDetection(
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=1,
        enforcing_consecutive_local_origin_failure=100,
        # Without the only one we fail open.
        max_ejection_percent=100 if members == 1 else 100 - 100 // members,
        successful_active_health_check_uneject_host=True,
        # What it answers, well or badly, is no sign that it is gone.
        enforcing_consecutive_5xx=0,
        enforcing_success_rate=0,
        enforcing_local_origin_success_rate=0,
    )


def http1_cluster(
    name: str, *places: HostPort, common: HttpProtocolOptions | None = None
) -> Cluster:
    """One HTTP/1.1 server, or one of each member of a cluster."""
    protocol = HttpProtocolOptionsExplicitHttpConfig(http_protocol_options=Http1ProtocolOptions())
    return _cluster_at(name, places, protocol, common)


def _grpc_cluster(name: str, keepalive: KeepaliveSettings, *places: HostPort) -> Cluster:
    # One connection for however many requests wait: Envoy opens one for each 1,024 by itself, and
    # the picker's port has a share of the descriptors.
    protocol = HttpProtocolOptionsExplicitHttpConfig(
        http2_protocol_options=Http2ProtocolOptions(
            connection_keepalive=keepalive, max_concurrent_streams=UNBOUNDED
        )
    )
    return _cluster_at(name, places, protocol)


def _cluster_at(
    name: str,
    places: Sequence[HostPort],
    protocol: HttpProtocolOptionsExplicitHttpConfig,
    common: HttpProtocolOptions | None = None,
) -> Cluster:
    """One server, or all members of a cluster. A lost connection takes a member out, but never all
    of them: the last one goes on as a single picker with fronts does."""
    are_ips = all(is_ip(place.host) for place in places)
    hosts = [LbEndpoint(endpoint=Endpoint(address=address(place))) for place in places]
    return Cluster(
        name=name,
        type=ClusterDiscoveryType.STATIC if are_ips else ClusterDiscoveryType.STRICT_DNS,
        connect_timeout=seconds(1),
        circuit_breakers=_unbounded(),
        typed_extension_protocol_options=_protocol(protocol, common),
        load_assignment=ClusterLoadAssignment(
            cluster_name=name, endpoints=[LocalityLbEndpoints(lb_endpoints=hosts)]
        ),
        outlier_detection=_gone_at_once(len(places)) if len(places) > 1 else None,
    )


def _protocol(
    explicit: HttpProtocolOptionsExplicitHttpConfig,
    common: HttpProtocolOptions | None = None,
    http_filters: Sequence[HttpFilter] = (),
) -> dict[str, Any]:
    options = UpstreamHttpProtocolOptions(
        explicit_http_config=explicit,
        common_http_protocol_options=common,
        http_filters=list(http_filters),
    )
    return {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(options)}


def _unbounded() -> CircuitBreakers:
    return CircuitBreakers(
        thresholds=[
            CircuitBreakersThresholds(
                priority=priority,
                max_connections=UNBOUNDED,
                max_pending_requests=UNBOUNDED,
                max_requests=UNBOUNDED,
                max_retries=UNBOUNDED,
            )
            for priority in (RoutingPriority.DEFAULT, RoutingPriority.HIGH)
        ]
    )
