"""Claims about extproc/envoy_config/tracing.py; a whole trace: tests/e2e/test_traces.py."""

from __future__ import annotations

from tests.envoy_config.parts import clusters, manager

COLLECTOR = "10.0.0.9:4317"


def test_a_named_collector_gets_envoys_spans() -> None:
    """Under Envoy's own service name, each call of a server a span of its own."""
    found = manager(tracing=COLLECTOR, trace_percent=5)["tracing"]
    config = found["provider"]["typed_config"]
    assert config["service_name"] == "envoy"
    cluster = config["grpc_service"]["envoy_grpc"]["cluster_name"]
    (target,) = clusters(tracing=COLLECTOR)[cluster]["load_assignment"]["endpoints"]
    place = target["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    assert (place["address"], place["port_value"]) == ("10.0.0.9", 4317)
    assert found["spawn_upstream_span"] is True
    assert found["random_sampling"] == {"value": 5.0}


def test_without_one_there_is_no_tracer() -> None:
    assert "tracing" not in manager()


def test_a_requests_name_decides_nothing_about_traces() -> None:
    """By default Envoy traces no request whose id is no UUID, and writes into those that are."""
    config = manager()["request_id_extension"]["typed_config"]
    assert config["use_request_id_for_trace_sampling"] is False
    assert config["pack_trace_reason"] is False
