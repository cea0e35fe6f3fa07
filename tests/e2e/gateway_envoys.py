"""Envoys as gateways configure them, from the sources of those gateways as they were in 2026.

- Istio: pilot/pkg/xds/filters/filters.go (`BuildInferencePoolExtProcFilter`) and the cluster of
  an InferencePool's shadow service: `override_host` over the pods that Istio knows by itself.
- Envoy AI Gateway (and Envoy Gateway, into which it puts this):
  internal/extensionserver/inferencepool.go (`buildHTTPFilterForInferencePool`) and
  post_cluster_modify.go: ORIGINAL_DST by the header, nothing forwarded of who served.

- Envoy Gateway alone, 1.9: internal/xds/translator/extproc.go, and cluster.go
  (`buildEndpointOverrideLoadBalancingPolicy`): `override_host` by the header over the pods of a
  Service, with the policies of docs/gateways.md.

What a test needs besides (a hint by headers of the request) is put before the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from extproc.envoy_config.options import EnvoyOptions, HostPort
from tests.fakes import quick_yaml

TYPE = "type.googleapis.com/envoy"
DESTINATION = "x-gateway-destination-endpoint"
DUPLEX = {
    "request_header_mode": "SEND",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
    "response_header_mode": "SEND",
    "response_body_mode": "FULL_DUPLEX_STREAMED",
    "response_trailer_mode": "SEND",
}
GATEWAY_MESSAGE_TIMEOUT_S = 5
"""Of Envoy AI Gateway before 0.4, 300 s since, without `max_message_timeout`."""
LB_METADATA = {"untyped": ["envoy.lb"]}

Print = Callable[[EnvoyOptions], str]


def istio(servers: Sequence[str], *, filters: Sequence[dict[str, Any]] = ()) -> Print:
    """With `failureMode: FailOpen`, and Istio's default retries."""
    ext_proc = {
        "failure_mode_allow": True,
        "message_timeout": "1000s",
        "metadata_options": {
            "receiving_namespaces": LB_METADATA,
            "forwarding_namespaces": {"untyped": ["envoy.lb", "envoy.lb.subset_hint"]},
        },
    }
    override = {
        "@type": f"{TYPE}.extensions.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [
            {"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION}]}}
        ],
        # Without it no gateway passes GatewayDestinationEndpointServed.
        "selected_host_key": {
            "key": "envoy.lb",
            "path": [{"key": f"{DESTINATION}-served"}],
        },
        "fallback_policy": _policy(
            "round_robin",
            {"@type": f"{TYPE}.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
        ),
    }
    cluster = {
        "type": "STATIC",
        "load_balancing_policy": _policy("override_host", override),
        "load_assignment": _assignment("pool", [HostPort.parse(server) for server in servers]),
    }
    retries = {
        "retry_on": "connect-failure,refused-stream,unavailable,cancelled",
        "num_retries": 2,
    }
    return _printer(ext_proc, cluster, retries, filters)


def envoy_ai_gateway(*, filters: Sequence[dict[str, Any]] = ()) -> Print:
    """It fails closed, whatever `failureMode` says, and knows no pods."""
    ext_proc = {"failure_mode_allow": False, "message_timeout": f"{GATEWAY_MESSAGE_TIMEOUT_S}s"}
    cluster = {
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION},
    }
    return _printer(ext_proc, cluster, None, filters)


def envoy_gateway(servers: Sequence[str]) -> Print:
    """By the policies of docs/gateways.md: it fails open, and the picker asks for bodies."""
    ext_proc = {
        "failure_mode_allow": True,
        "message_timeout": "300s",
        "allow_mode_override": True,
        "processing_mode": {
            "request_header_mode": "SEND",
            "request_body_mode": "NONE",
            "request_trailer_mode": "SKIP",
            "response_header_mode": "SEND",
            "response_body_mode": "NONE",
            "response_trailer_mode": "SKIP",
        },
        "response_attributes": [
            "upstream.address",
            "upstream.request_attempt_count",
            "response.code_details",
        ],
    }
    override = {
        "@type": f"{TYPE}.extensions.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [{"header": DESTINATION}],
        "fallback_policy": _policy(
            "least_request",
            {"@type": f"{TYPE}.extensions.load_balancing_policies.least_request.v3.LeastRequest"},
        ),
    }
    cluster = {
        "type": "STATIC",
        "load_balancing_policy": _policy("override_host", override),
        "load_assignment": _assignment("pool", [HostPort.parse(server) for server in servers]),
    }
    retries = {"retry_on": "connect-failure,refused-stream", "num_retries": 2}
    return _printer(ext_proc, cluster, retries, ())


def _printer(
    ext_proc: dict[str, Any],
    pool: dict[str, Any],
    retries: dict[str, Any] | None,
    filters: Sequence[dict[str, Any]],
) -> Print:
    def printed(options: EnvoyOptions) -> str:
        action: dict[str, Any] = {"cluster": "pool", "timeout": "0s"}
        if retries is not None:
            action["retry_policy"] = retries
        routes = [{"match": {"prefix": "/"}, "route": action}]
        manager = {
            "@type": f"{TYPE}.extensions.filters.network.http_connection_manager.v3"
            ".HttpConnectionManager",
            "stat_prefix": "gateway",
            "route_config": {
                "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]
            },
            "http_filters": [
                *filters,
                {"name": "picker", "typed_config": _filter(ext_proc)},
                {
                    "name": "router",
                    "typed_config": {"@type": f"{TYPE}.extensions.filters.http.router.v3.Router"},
                },
            ],
        }
        chain = {"filters": [{"name": "manager", "typed_config": manager}]}
        listener = {"address": _at(HostPort.parse(options.envoy.listen)), "filter_chains": [chain]}
        clusters = [{"name": "pool", "connect_timeout": "10s", **pool}, _picker(options.picker)]
        return quick_yaml.dump(
            {
                "admin": {"address": _at(HostPort.parse(options.envoy.admin))},
                "static_resources": {"listeners": [listener], "clusters": clusters},
            }
        )

    return printed


def _filter(ext_proc: dict[str, Any]) -> dict[str, Any]:
    return {
        "@type": f"{TYPE}.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}},
        "processing_mode": DUPLEX,
        **ext_proc,
    }


def _picker(place: HostPort) -> dict[str, Any]:
    http2: dict[str, Any] = {"explicit_http_config": {"http2_protocol_options": {}}}
    return {
        "name": "picker",
        "type": "STATIC",
        "connect_timeout": "10s",
        "lb_policy": "LEAST_REQUEST",
        "load_assignment": _assignment("picker", [place]),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{TYPE}.extensions.upstreams.http.v3.HttpProtocolOptions",
                **http2,
            }
        },
    }


def _assignment(cluster: str, places: Sequence[HostPort]) -> dict[str, Any]:
    endpoints = [{"endpoint": {"address": _at(place)}} for place in places]
    return {"cluster_name": cluster, "endpoints": [{"lb_endpoints": endpoints}]}


def _policy(name: str, config: dict[str, Any]) -> dict[str, Any]:
    extension = {"name": f"envoy.load_balancing_policies.{name}", "typed_config": config}
    return {"policies": [{"typed_extension_config": extension}]}


def _at(place: HostPort) -> dict[str, Any]:
    return {"socket_address": {"address": place.host, "port_value": place.port}}


def hint_from(header: str) -> dict[str, Any]:
    """A filter that makes the protocol's subset hint of a request's header, where there is one."""
    key = f"{DESTINATION}-subset"
    rule = {
        "header": header,
        "on_header_present": {"metadata_namespace": "envoy.lb.subset_hint", "key": key},
    }
    kind = f"{TYPE}.extensions.filters.http.header_to_metadata.v3.Config"
    return {"name": "hint", "typed_config": {"@type": kind, "request_rules": [rule]}}


def with_filter(config: str, added: dict[str, Any]) -> str:
    """A printed configuration with one more filter, before all others."""
    tree = quick_yaml.load(config)
    managers = [
        one["typed_config"]
        for listener in tree["static_resources"]["listeners"]
        for chain in listener["filter_chains"]
        for one in chain["filters"]
        if "http_filters" in one["typed_config"]
    ]
    assert managers
    for manager in managers:
        manager["http_filters"].insert(0, added)
    return quick_yaml.dump(tree)
