"""Claims about extproc/envoy_config/listener.py: what the clients' door bears and what not."""

from __future__ import annotations

import pytest

from extproc.envoy_config.listener import steered_manager
from extproc.envoy_config.options import Mode
from tests.envoy_config.parts import manager, plain, whole
from tests.fakes.envoy_text import options_with

STEERING = (
    "x-gateway-destination-endpoint",
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-subset",
    "x-coxswain-client",
)


def test_it_listens_where_it_is_set_to() -> None:
    (listener,) = whole(listen="127.0.0.1:8000")["static_resources"]["listeners"]
    place = listener["address"]["socket_address"]
    assert (place["address"], place["port_value"]) == ("127.0.0.1", 8000)


@pytest.mark.parametrize("mode", Mode)
def test_nobody_steers_by_headers(mode: Mode) -> None:
    """They are taken away before anything reads them; so is all that Envoy itself obeys."""
    (early,) = manager(mode=mode)["early_header_mutation_extensions"]
    mutations = early["typed_config"]["mutations"]
    assert [each["remove"] for each in mutations if "remove" in each] == list(STEERING)
    (rest,) = (each["remove_on_match"] for each in mutations if "remove_on_match" in each)
    assert rest["key_matcher"] == {"prefix": "x-envoy-"}


def test_paths_are_made_plain_before_routes_match() -> None:
    """Doubled slashes, dots and escaped slashes hide no closed path."""
    found = manager()
    assert found["normalize_path"] and found["merge_slashes"]
    assert found["path_with_escaped_slashes_action"] == "UNESCAPE_AND_FORWARD"


def test_slow_clients_are_bounded_and_waiting_ones_are_not() -> None:
    """Headers, the body beside the longest wait, and connections that idle; silence is free."""
    found = manager(
        request_headers_timeout_s=4,
        request_body_timeout_s=30,
        max_message_timeout_s=100,
        connection_idle_timeout_s=50,
    )
    assert found["stream_idle_timeout"] == "0s"
    assert (found["request_headers_timeout"], found["request_timeout"]) == ("4s", "130s")
    assert found["stream_flush_timeout"] == "50s"
    assert found["common_http_protocol_options"]["idle_timeout"] == "50s"


def test_names_of_requests_stay() -> None:
    """A client asks by its own id where it stands, and reads it on the answer."""
    found = manager()
    assert found["preserve_external_request_id"] and found["always_set_request_id_in_response"]
    assert found["request_id_extension"]["typed_config"]["pack_trace_reason"] is False


def test_whom_to_believe_about_the_client() -> None:
    """Nobody, unless it is said how many proxies stand before."""
    assert manager()["use_remote_address"] is True
    assert "xff_num_trusted_hops" not in manager()
    assert manager(trusted_proxies=2)["xff_num_trusted_hops"] == 2


def test_filters_stand_in_their_order() -> None:
    """The picker is asked last, the router alone stands behind it."""
    names = [each["name"] for each in manager()["http_filters"]]
    assert names[-1] == "envoy.filters.http.router"
    assert names[-2] == "envoy.filters.http.ext_proc"


def test_anothers_manager_keeps_what_is_its_own() -> None:
    """The printed parts say nothing of its routes, filters, tracer, timeouts or who it is."""
    part = plain(steered_manager(options_with(tracing="10.0.0.9:4317")))
    assert set(part) == {"access_log", "access_log_options", "local_reply_config"}
