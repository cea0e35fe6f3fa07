"""The configuration of an Envoy that was there before, into which one puts the printed parts."""

from __future__ import annotations

from typing import Any

from extproc.envoy_config.options import EnvoyOptions, HostPort
from tests.fakes import quick_yaml

MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "envoy.extensions.filters.http.router.v3.Router"

OWN_PATH = "/theirs"
"""What it answers by itself: 401 `theirs`."""
APP = "/app"
"""Its application: 200, and which headers reached it."""
SEEN = ("x-envoy-upstream-rq-timeout-ms", "x-gateway-destination-endpoint", "x-request-id")


def as_before(options: EnvoyOptions) -> str:
    """Its configuration before it got any part."""
    nothing: dict[str, Any] = {
        "http_connection_manager": {},
        "http_filters": [],
        "routes": [],
        "clusters": [],
    }
    return dropped_in(quick_yaml.dump(nothing), options)


def dropped_in(text: str, options: EnvoyOptions) -> str:
    """A configuration that has the parts where their comments say they go."""
    parts = quick_yaml.load(text)
    router = {"name": "router", "typed_config": {"@type": f"type.googleapis.com/{ROUTER}"}}
    served = parts.get("dynamic_resources")
    closed = {"status": 401, "body": {"inline_string": "theirs"}}
    own = {"name": "theirs", "match": {"prefix": OWN_PATH}, "direct_response": closed}
    app = {
        "name": "app",
        "match": {"path": APP},
        "direct_response": {"status": 200, "body": {"inline_string": "app"}},
        "response_headers_to_add": [
            {"header": {"key": f"seen-{name}", "value": f"%REQ({name})%"}} for name in SEEN
        ],
    }
    routes: dict[str, Any] = {
        "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [own, app, *parts["routes"]]}]
    }
    if served is not None:
        routes["validate_clusters"] = False
    manager = {
        "@type": f"type.googleapis.com/{MANAGER}",
        "stat_prefix": "theirs",
        "use_remote_address": True,
        **parts["http_connection_manager"],
        "http_filters": [*parts["http_filters"], router],
        "route_config": routes,
    }
    chain = {"filters": [{"name": "manager", "typed_config": manager}]}
    listener = {"name": "theirs", "address": _at(options.envoy.listen), "filter_chains": [chain]}
    config: dict[str, Any] = {
        "node": {"id": "theirs", "cluster": "theirs"},
        "admin": {"address": _at(options.envoy.admin)},
        "static_resources": {"listeners": [listener], "clusters": parts["clusters"]},
    }
    if served is not None:
        config["dynamic_resources"] = served
    return quick_yaml.dump(config)


def _at(text: str) -> dict[str, Any]:
    place = HostPort.parse(text)
    return {"socket_address": {"address": place.host, "port_value": place.port}}
