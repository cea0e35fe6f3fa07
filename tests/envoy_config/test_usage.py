"""Claims about extproc/envoy_config/usage.py: responses are sent beside the request path."""

from __future__ import annotations

from copy import deepcopy

import pytest

from extproc import header_names
from extproc.envoy_config import names
from extproc.envoy_config.options import EnvoyOptions, Mode
from extproc.usage.response_stream import PREFIX
from tests.envoy_config.parts import bootstrap, manager, read, routes, snippet

ON = {"reads_usage": True}


def test_without_a_count_of_usage_nothing_is_sent() -> None:
    """Not a byte of the configuration differs but for the setting."""
    assert names.USAGE_FILTER not in bootstrap(EnvoyOptions())
    with_it = deepcopy(manager(**ON))
    with_it["http_filters"] = [
        each for each in with_it["http_filters"] if each["name"] != names.USAGE_FILTER
    ]
    server = with_it["route_config"]["virtual_hosts"][0]["routes"][-1]
    del server["typed_per_filter_config"][names.USAGE_FILTER]
    assert with_it == manager()


def test_envoy_waits_for_nothing_and_fails_open() -> None:
    """And sends nothing but the parts of the response's body, also with original_dst."""
    for mode in (Mode.DISCOVERY, Mode.ORIGINAL_DST):
        (found,) = (
            each
            for each in manager(mode=mode, **ON)["http_filters"]
            if each["name"] == names.USAGE_FILTER
        )
        config = found["typed_config"]
        assert config["observability_mode"] is True
        assert config["failure_mode_allow"] is True
        assert config["processing_mode"] == {
            "request_header_mode": "SKIP",
            "response_header_mode": "SKIP",
            "response_body_mode": "STREAMED",
            "request_trailer_mode": "SKIP",
            "response_trailer_mode": "SKIP",
        }
        (header,) = config["grpc_service"]["initial_metadata"]
        assert header["key"] == header_names.USAGE
        assert header_names.EXCHANGE in header["value"]
        assert header["value"].startswith(PREFIX), "a header without a value would not be sent"


def test_only_responses_of_servers_are_sent() -> None:
    """The filter is off, but for the route to the servers."""
    (found,) = (
        each for each in manager(**ON)["http_filters"] if each["name"] == names.USAGE_FILTER
    )
    assert found["disabled"] is True
    named = [
        route["name"]
        for route in routes(**ON)
        if names.USAGE_FILTER in route.get("typed_per_filter_config", {})
    ]
    assert named == ["llama"]


def test_a_gateways_responses_pass_the_picker_anyway() -> None:
    assert names.USAGE_FILTER not in bootstrap(EnvoyOptions(mode=Mode.GATEWAY, reads_usage=True))


@pytest.mark.parametrize("is_on", [True, False])
def test_an_envoy_of_ones_own_gets_the_filter_too(is_on: bool) -> None:
    parts = read(snippet(EnvoyOptions(reads_usage=is_on)))
    assert (names.USAGE_FILTER in [each["name"] for each in parts["http_filters"]]) == is_on
