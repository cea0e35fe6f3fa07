"""A server as fast as can be in place of llama-server: an Envoy that answers by itself.

It speaks the paths that the scraper asks and answers every completion at once, so that what
is measured is the way to it. One process can listen on many ports: that many endpoints.
"""

import json
from typing import Any

import yaml


def configuration(ports: list[int], slots: int, service_s: float = 0.0) -> str:
    """Envoy's configuration for servers on `ports` with `slots` idle slots each; a completion
    takes `service_s`."""
    return yaml.safe_dump(
        {"static_resources": {"listeners": [_listener(port, slots, service_s) for port in ports]}}
    )


def _listener(port: int, slots: int, service_s: float) -> dict[str, Any]:
    idle = [{"id": index, "n_ctx": 4096, "is_processing": False} for index in range(slots)]
    props = {
        "total_slots": slots,
        "model_alias": "tiny",
        "model_path": "tiny.gguf",
        "endpoint_slots": True,
        "is_sleeping": False,
        "build_info": "stand-in",
    }
    answer = {"choices": [{"message": {"role": "assistant", "content": "row"}}], "model": "tiny"}
    models = {"object": "list", "data": [{"id": "tiny", "aliases": []}]}
    routes = [
        _route("/health", {"status": "ok"}),
        _route("/slots", idle),
        _route("/props", props),
        _route("/v1/models", models),
        _route("/", answer),
    ]
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network."
        "http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "stand_in",
        "route_config": {
            "max_direct_response_body_size_bytes": 1024 * 1024,
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
        },
        "http_filters": [
            *([_delay(service_s)] if service_s else []),
            {
                "name": "router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                },
            },
        ],
    }
    return {
        "name": f"stand-in-{port}",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _delay(seconds: float) -> dict[str, Any]:
    """A filter that holds completions for so long."""
    fault = "envoy.extensions.filters.http.fault.v3.HTTPFault"
    completions = {"name": ":path", "string_match": {"prefix": "/v1/chat/"}}
    return {
        "name": "delay",
        "typed_config": {
            "@type": f"type.googleapis.com/{fault}",
            "headers": [completions],
            "delay": {"fixed_delay": f"{seconds:g}s", "percentage": {"numerator": 100}},
        },
    }


def _route(prefix: str, answer: object) -> dict[str, Any]:
    return {
        "match": {"prefix": prefix},
        "direct_response": {"status": 200, "body": {"inline_string": json.dumps(answer)}},
        "response_headers_to_add": [
            {
                "header": {"key": "content-type", "value": "application/json"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ],
    }
