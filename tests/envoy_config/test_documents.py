"""Claims about extproc/envoy_config/documents.py and the files that it prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from extproc.envoy_config.options import EnvoyOptions, HostPort, Mode, OptionsError
from tests.envoy_config.parts import (
    asking_filters,
    bootstrap,
    clusters_in,
    document,
    manager_in,
    processor,
    read,
    snippet,
)
from tests.fakes.envoy_text import options_with

FILES = Path(__file__).resolve().parents[2] / "envoy"
CONTENTS: dict[str, Callable[[], str]] = {
    "envoy.yaml": lambda: bootstrap(EnvoyOptions()),
    "ext_proc_filter.yaml": lambda: snippet(EnvoyOptions()),
    "gateway.yaml": lambda: bootstrap(EnvoyOptions(mode=Mode.GATEWAY)),
    "original_dst.yaml": lambda: bootstrap(EnvoyOptions(mode=Mode.ORIGINAL_DST)),
}


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.iterdir()))
def test_the_files_are_what_the_command_prints(name: str) -> None:
    """`coxswain config envoy` prints them; after a change, print them again."""
    assert (FILES / name).read_text(encoding="utf-8") == CONTENTS[name]()


def test_envoys_folder_is_no_python_package() -> None:
    """With an `__init__.py` it would hide the package that brings the Envoy binary."""
    assert {path.name for path in FILES.iterdir()} == set(CONTENTS)


@pytest.mark.parametrize("mode", Mode)
def test_no_server_is_sent_a_second_request_on_a_connection(mode: Mode) -> None:
    """llama-server hangs up after each stream, and what was sent meanwhile would be lost."""
    cluster = clusters_in(document(EnvoyOptions(mode=mode, serves_cluster=False)))["llama"]
    protocol = next(iter(cluster["typed_extension_protocol_options"].values()))
    assert protocol["common_http_protocol_options"]["max_requests_per_connection"] == 1


@pytest.mark.parametrize("mode", Mode)
def test_connections_that_are_used_again_end_before_the_server_ends_them(mode: Mode) -> None:
    """llama-server does after 100 requests and after 5 s."""
    options = options_with(mode=mode, serves_cluster=False, reuse_connections=True)
    cluster = clusters_in(document(options))["llama"]
    protocol = next(iter(cluster["typed_extension_protocol_options"].values()))
    assert protocol["common_http_protocol_options"] == {
        "idle_timeout": "1s",
        "max_requests_per_connection": 90,
    }


def test_discovery_fails_open_and_original_dst_fails_closed() -> None:
    opens = {mode: processor(mode=mode).get("failure_mode_allow", False) for mode in Mode}
    assert opens == {Mode.DISCOVERY: True, Mode.GATEWAY: True, Mode.ORIGINAL_DST: False}


def test_the_streams_life_is_the_leases_life() -> None:
    """No bodies, and response trailers on, or Envoy would end the stream at the headers."""
    asked = processor()
    assert asked["processing_mode"] == {
        "request_header_mode": "SEND",
        "response_header_mode": "SEND",
        "request_trailer_mode": "SKIP",
        "response_trailer_mode": "SEND",
    }
    assert asked["allow_mode_override"] is True


@pytest.mark.parametrize("mode", Mode)
def test_no_timeout_ends_a_request_that_waits_or_is_answered(mode: Mode) -> None:
    manager = manager_in(document(EnvoyOptions(mode=mode)))
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    actions = [route["route"] for route in routes if "route" in route]
    assert len(actions) == 2, "the queue's, and the one to the servers"
    for action in actions:
        assert manager["stream_idle_timeout"] == action["timeout"] == action["idle_timeout"] == "0s"
    assert (
        float(manager["request_timeout"].removesuffix("s"))
        > EnvoyOptions().envoy.max_message_timeout_s
    )


@pytest.mark.parametrize("mode", Mode)
def test_no_circuit_breaker_stands_before_the_queue(mode: Mode) -> None:
    for cluster in clusters_in(document(EnvoyOptions(mode=mode))).values():
        for threshold in cluster["circuit_breakers"]["thresholds"]:
            limits = {name: limit for name, limit in threshold.items() if name != "priority"}
            assert set(limits) == {
                *("max_connections", "max_pending_requests", "max_requests", "max_retries")
            }
            assert min(limits.values()) >= 1_000_000


def test_the_admin_port_and_the_picker_stay_on_loopback() -> None:
    admin = document(EnvoyOptions())["admin"]
    assert admin["address"]["socket_address"]["address"] == "127.0.0.1"


def test_tracing_is_off_until_a_collector_is_named() -> None:
    assert "tracing" not in manager_in(document(EnvoyOptions()))
    traced = bootstrap(options_with(tracing="collector:4317"))
    provider = manager_in(read(traced))["tracing"]["provider"]["typed_config"]["grpc_service"]
    assert provider["envoy_grpc"]["cluster_name"] in clusters_in(read(traced))


def test_a_named_picker_is_resolved_and_an_ip_is_not() -> None:
    types = [
        clusters_in(document(EnvoyOptions(picker=HostPort(host, 9002))))["coxswain"]["type"]
        for host in ("picker.internal", "10.0.0.1", "::1")
    ]
    assert types == ["STRICT_DNS", "STATIC", "STATIC"]


def test_the_snippet_has_the_same_filter_routes_and_clusters_as_the_whole() -> None:
    options = EnvoyOptions(serves_cluster=False)
    parts, whole = read(snippet(options)), manager_in(document(options))
    assert list(parts) == ["http_connection_manager", "http_filters", "routes", "clusters"]
    assert parts["http_filters"][1:] == whole["http_filters"][:1]
    preflight, detour, *routes = parts["routes"]
    enabled = routes[-1]["typed_per_filter_config"]
    assert detour["name"] == "blocked-detour" and enabled.pop("coxswain.removals")
    routes = [preflight, *routes]
    assert routes == whole["route_config"]["virtual_hosts"][0]["routes"]
    assert parts["clusters"] == document(options)["static_resources"]["clusters"]
    manager = parts["http_connection_manager"]
    assert list(manager) == ["access_log", "access_log_options", "local_reply_config"]
    assert manager["access_log_options"] == whole["access_log_options"]
    [ends, uploads] = manager["access_log"]
    assert uploads == whole["access_log"][-1]
    is_ours = ends["filter"]["and_filter"]["filters"].pop(1)
    assert "xds.route_name in" in str(is_ours) and ends == whole["access_log"][-2]
    mappers, all_mappers = (each["local_reply_config"]["mappers"] for each in (manager, whole))
    assert mappers[:2] == all_mappers[:2], "before there is a route"
    for mapper, same in zip(mappers[2:], all_mappers[2:], strict=True):
        on_routes, filter_ = mapper["filter"]["and_filter"]["filters"]
        expression = on_routes["extension_filter"]["typed_config"]["expression"]
        assert all(repr(route["name"]) in expression for route in (detour, *routes))
        assert {**mapper, "filter": filter_} == same


def test_the_snippet_may_leave_the_servers_cluster_to_the_picker() -> None:
    """As the whole does: the same words to it, and the step that keeps clients' own keys."""
    options = EnvoyOptions()
    parts = read(snippet(options, serves_cluster=True))
    whole = document(options)
    assert parts["clusters"] == whole["static_resources"]["clusters"]
    assert parts["dynamic_resources"] == whole["dynamic_resources"]
    steps = manager_in(document(options))["http_filters"]
    removals, *others = parts["http_filters"]
    assert removals["name"] == "coxswain.removals"
    assert others == [step for step in steps if "router" not in step["name"]]
    with pytest.raises(OptionsError, match="discovery"):
        snippet(EnvoyOptions(mode=Mode.ORIGINAL_DST), serves_cluster=True)


@pytest.mark.parametrize("mode", Mode)
def test_what_is_no_http_is_rejected_past_the_picker(mode: Mode) -> None:
    """Each mark by which the filter lets a rejection by is one that a mapper sets."""
    manager = manager_in(document(EnvoyOptions(mode=mode)))
    (found,) = asking_filters(mode=mode)
    (rule,) = found["typed_config"]["xds_matcher"]["matcher_list"]["matchers"]
    marks = {
        each["single_predicate"]["value_match"]["exact"]
        for each in rule["predicate"]["or_matcher"]["predicate"]
    }
    mappers = manager["local_reply_config"]["mappers"]
    told = {
        each["header"]["value"] for mapper in mappers for each in mapper.get("headers_to_add", [])
    }
    assert marks == {"malformed-http", "too-many-headers", "unsupported-http"} and marks <= told


@pytest.mark.parametrize("mode", Mode)
def test_the_picker_is_asked_on_the_way_to_the_servers_alone(mode: Mode) -> None:
    """Not about rejections of what has no route, nor about paths that end in Envoy."""
    manager = manager_in(document(EnvoyOptions(mode=mode)))
    assert [each["disabled"] for each in asking_filters(mode=mode)] == [True]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    asked = [route["name"] for route in routes if "typed_per_filter_config" in route]
    assert asked == ["model", "llama"]


@pytest.mark.parametrize("mode", Mode)
def test_a_lost_picker_is_known_at_once(mode: Mode) -> None:
    """By its connection, not by what it answers, and without a delay for merged updates."""
    picker = clusters_in(document(EnvoyOptions(mode=mode)))["coxswain"]
    outliers = picker["outlier_detection"]
    assert outliers["consecutive_local_origin_failure"] == 1
    assert outliers["split_external_local_origin_errors"] is True
    assert outliers["max_ejection_percent"] == 100
    assert outliers["enforcing_consecutive_5xx"] == 0
    assert picker["common_lb_config"]["update_merge_window"] == "0s"
