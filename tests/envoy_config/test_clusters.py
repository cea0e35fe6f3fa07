"""Claims about extproc/envoy_config/clusters.py and load_balancing.py."""

from __future__ import annotations

import pytest

from extproc.envoy_config.clusters import UNBOUNDED, own_clusters
from extproc.envoy_config.options import EnvoyOptions, HostPort, Mode
from tests.envoy_config.parts import clusters

PLACE = "10.0.0.9:4317"


def test_which_clusters_there_are() -> None:
    """The servers', the picker's, its pages' unless they are closed, the collector's if named."""
    assert list(clusters()) == ["llama", "coxswain", "coxswain-status"]
    assert list(clusters(status=None)) == ["llama", "coxswain"]
    assert list(clusters(tracing=PLACE))[-1] == "otel_collector"
    assert [one.name for one in own_clusters(EnvoyOptions())] == ["coxswain", "coxswain-status"]


def test_the_pickers_list_comes_first_and_least_request_behind_it() -> None:
    """The header, the same as metadata, and where Envoy writes who served."""
    (policy,) = clusters()["llama"]["load_balancing_policy"]["policies"]
    chosen = policy["typed_extension_config"]["typed_config"]
    key = {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}
    assert chosen["override_host_sources"] == [
        {"header": "x-gateway-destination-endpoint"},
        {"metadata": key},
    ]
    served = chosen["selected_host_key"]["path"]
    assert served == [{"key": "x-gateway-destination-endpoint-served"}]
    (fallback,) = chosen["fallback_policy"]["policies"]
    assert fallback["typed_extension_config"]["name"].endswith(".least_request")


def test_half_a_fleet_down_is_no_reason_to_send_requests_there() -> None:
    """No panic; a drained server keeps its answers until the picker takes it out."""
    llama = clusters()["llama"]
    assert llama["common_lb_config"]["healthy_panic_threshold"] == {"value": 0.0}
    assert llama["ignore_health_on_host_removal"] is True


def test_health_checks_wake_no_server_and_count_fast() -> None:
    """`/health` alone; a bad server is looked at again after a second at most."""
    (check,) = clusters(health_interval_s=8)["llama"]["health_checks"]
    alive = {"start": "200", "end": "500"}  # Ollama has no such path
    assert check["http_health_check"] == {"path": "/health", "expected_statuses": [alive]}
    assert (check["interval"], check["unhealthy_interval"]) == ("8s", "1s")
    (quick,) = clusters(health_interval_s=0.5)["llama"]["health_checks"]
    assert quick["unhealthy_interval"] == "0.500s"


def test_without_discovery_the_metadata_names_the_address() -> None:
    """A header would be the client's to write."""
    llama = clusters(mode=Mode.ORIGINAL_DST)["llama"]
    assert llama["type"] == "ORIGINAL_DST"
    assert llama["original_dst_lb_config"]["metadata_key"]["key"] == "envoy.lb"
    assert "use_http_header" not in llama["original_dst_lb_config"]


def test_discovery_is_the_pickers_and_bounded() -> None:
    """Envoy opens its door after the timeout; a picker that restarts is asked within a second."""
    source = clusters(discovery_timeout_s=3)["llama"]["eds_cluster_config"]["eds_config"]
    assert source["initial_fetch_timeout"] == "3s"
    (service,) = source["api_config_source"]["grpc_services"]
    assert service["envoy_grpc"]["cluster_name"] == "coxswain"
    assert service["envoy_grpc"]["retry_policy"]["retry_back_off"]["max_interval"] == "0.500s"


def test_a_lost_picker_is_out_at_once_and_what_it_answers_never_matters() -> None:
    """One failed connection; no answer of it counts as an error."""
    detection = clusters()["coxswain"]["outlier_detection"]
    assert detection["consecutive_local_origin_failure"] == 1
    assert detection["max_ejection_percent"] == 100
    assert detection["enforcing_consecutive_5xx"] == 0
    (check,) = clusters()["coxswain"]["health_checks"]
    service = "envoy.service.ext_proc.v3.ExternalProcessor"
    assert check["grpc_health_check"] == {"service_name": service}


@pytest.mark.parametrize(("message_timeout_s", "silence"), [(1.0, "3s"), (2.5, "4.500s")])
def test_the_pickers_connection_lasts_as_long_as_a_message_may_wait(
    message_timeout_s: float, silence: str
) -> None:
    """Of several fronts the others answer meanwhile."""

    def silences(**options: bool) -> tuple[str, float]:
        picker = clusters(message_timeout_s=message_timeout_s, **options)["coxswain"]
        (protocol,) = picker["typed_extension_protocol_options"].values()
        http2 = protocol["explicit_http_config"]["http2_protocol_options"]
        (check,) = picker["health_checks"]
        return http2["connection_keepalive"]["timeout"], check["unhealthy_threshold"]

    timeout, checks = silences()
    assert timeout == silence and float(silence[:-1]) <= checks < float(silence[:-1]) + 1
    assert silences(has_fronts=True) == ("3s", 3)


@pytest.mark.parametrize("name", ["llama", "coxswain", "coxswain-status", "otel_collector"])
def test_breakers_break_nothing(name: str) -> None:
    """Each running request holds a stream: Envoy's 1,024 would be 500s. Both priorities."""
    thresholds = clusters(tracing=PLACE)[name]["circuit_breakers"]["thresholds"]
    assert len(thresholds) == 2
    for each in thresholds:
        assert {value for key, value in each.items() if key != "priority"} == {UNBOUNDED}


@pytest.mark.parametrize(("host", "kind"), [("10.0.0.2", None), ("picker.lan", "STRICT_DNS")])
def test_a_name_is_resolved_and_an_address_is_not(host: str, kind: str | None) -> None:
    found = clusters(picker=HostPort(host, 9002))["coxswain"]
    assert found.get("type") in ({kind} if kind else {None, "STATIC"})


def test_with_fronts_a_lost_one_does_not_take_the_others_out() -> None:
    """All share one address: only health checks say that nobody is there."""
    picker = clusters(has_fronts=True)["coxswain"]
    assert "outlier_detection" not in picker
    assert picker["close_connections_on_host_health_failure"] is True
    assert "close_connections_on_host_health_failure" not in clusters()["coxswain"]


def test_what_asks_again_has_a_connection_of_its_own_for_each() -> None:
    """The same place, with the same checks: only the connection was lost."""
    found = clusters(has_fronts=True, sends_bodies=True)
    first, again = found["coxswain"], found["coxswain-again"]
    alike = ("health_checks", "common_lb_config", "close_connections_on_host_health_failure")
    assert {key: first[key] for key in alike} == {key: again[key] for key in alike}
    assert first["load_assignment"]["endpoints"] == again["load_assignment"]["endpoints"]
    [protocol] = again["typed_extension_protocol_options"].values()
    assert protocol["common_http_protocol_options"]["max_requests_per_connection"] == 1
    assert "coxswain-again" not in clusters(has_fronts=True)


@pytest.mark.parametrize(("host", "kind"), [("10.0.0.3", None), ("b.lan", "STRICT_DNS")])
def test_all_members_of_a_cluster_serve_at_one_priority(host: str, kind: str | None) -> None:
    """A lost one is left at once, but never all of them."""
    first, other = HostPort("10.0.0.2", 9002), f"{host}:9002"
    picker = clusters(has_fronts=True, picker=first, other_pickers=(other,))["coxswain"]
    [locality] = picker["load_assignment"]["endpoints"]
    places = [one["endpoint"]["address"]["socket_address"] for one in locality["lb_endpoints"]]
    assert [place["address"] for place in places] == ["10.0.0.2", host]
    assert picker.get("type") in ({kind} if kind else {None, "STATIC"})
    assert picker["outlier_detection"]["max_ejection_percent"] == 50
    assert picker["close_connections_on_host_health_failure"] is True


def test_the_countdown_is_asked_of_any_member_of_a_cluster() -> None:
    pages = clusters(other_status=(HostPort("10.0.0.3", 9090),))["coxswain-status"]
    [locality] = pages["load_assignment"]["endpoints"]
    places = [one["endpoint"]["address"]["socket_address"] for one in locality["lb_endpoints"]]
    assert [place["address"] for place in places] == ["127.0.0.1", "10.0.0.3"]
    assert pages["outlier_detection"]["max_ejection_percent"] == 50


def test_the_pickers_pages_keep_no_connection_of_envoy() -> None:
    """One that is kept may make way for another just as Envoy sends a request on it."""
    (protocol,) = clusters()["coxswain-status"]["typed_extension_protocol_options"].values()
    assert protocol["common_http_protocol_options"] == {"max_requests_per_connection": 1}
