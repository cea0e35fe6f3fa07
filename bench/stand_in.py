"""A server as fast as can be in place of llama-server: an Envoy that answers by itself.

It speaks the paths that the scraper asks and answers every completion at once, so that what
is measured is the way to it. One process can listen on many ports: that many endpoints.
"""

import json
from collections.abc import Sequence
from typing import Any

import yaml

DELAY = "delay"
METRICS = """\
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 0
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 0
"""


def configuration(
    ports: list[int], slots: int, service_s: float = 0.0, times_ms: Sequence[int] = ()
) -> str:
    """Envoy's configuration for servers on `ports` with `slots` idle slots each; a completion
    takes `service_s`, or what its query names of `times_ms`: `?ms=20`."""
    listeners = [_listener(port, slots, service_s, times_ms) for port in ports]
    return yaml.safe_dump({"static_resources": {"listeners": listeners}})


def _listener(port: int, slots: int, service_s: float, times_ms: Sequence[int]) -> dict[str, Any]:
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
        _route("/metrics", METRICS, "text/plain"),
        *(_timed(_route("/", answer), each) for each in times_ms),
        _route("/", answer),
    ]
    manager = _typed("network.http_connection_manager.v3.HttpConnectionManager") | {
        "stat_prefix": "stand_in",
        "route_config": {
            "max_direct_response_body_size_bytes": 1024 * 1024,
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}],
        },
        "http_filters": [
            *([_delay(service_s)] if service_s or times_ms else []),
            {"name": "router", "typed_config": _typed("http.router.v3.Router")},
        ],
    }
    return {
        "name": f"stand-in-{port}",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _typed(kind: str) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/envoy.extensions.filters.{kind}"}


def _delay(seconds: float) -> dict[str, Any]:
    """A filter that holds completions for so long, unless their route says otherwise."""
    completions = {"name": ":path", "string_match": {"prefix": "/v1/chat/"}}
    return {"name": DELAY, "typed_config": _fault(seconds) | {"headers": [completions]}}


def _fault(seconds: float) -> dict[str, Any]:
    found = _typed("http.fault.v3.HTTPFault")
    if seconds:
        percentage = {"numerator": 100}
        found["delay"] = {"fixed_delay": f"{seconds:g}s", "percentage": percentage}
    return found


def _timed(route: dict[str, Any], milliseconds: int) -> dict[str, Any]:
    """The same route for `?ms=`, which takes so long."""
    query = {"name": "ms", "string_match": {"exact": str(milliseconds)}}
    return route | {
        "match": route["match"] | {"query_parameters": [query]},
        "typed_per_filter_config": {DELAY: _fault(milliseconds / 1000)},
    }


def _route(prefix: str, answer: object, kind: str = "application/json") -> dict[str, Any]:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    return {
        "match": {"prefix": prefix},
        "direct_response": {"status": 200, "body": {"inline_string": text}},
        "response_headers_to_add": [
            {
                "header": {"key": "content-type", "value": kind},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ],
    }
