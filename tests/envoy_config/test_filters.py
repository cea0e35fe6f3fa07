"""Claims about extproc/envoy_config/filters.py."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from extproc import header_names
from extproc.envoy_config.names import AGAIN_FILTER, ARRIVAL_FILTER, EXT_PROC_FILTER
from extproc.envoy_config.options import EnvoyOptions, Mode
from extproc.header_names import ARRIVED_AT
from extproc.transport.long_wait import LONG, LONG_WAIT
from tests.envoy_config.parts import bootstrap, manager, manager_in, processor, read
from tests.fakes.envoy_text import options_with


def test_envoy_sends_the_headers_that_are_read_and_no_others() -> None:
    """What the picker is not sent it cannot read; what it does not read it need not be sent."""
    allowed = processor()["forward_rules"]["allowed_headers"]
    sent = [pattern["exact"] for pattern in allowed["patterns"]]
    assert sorted({*header_names.REQUEST_HEADERS, *header_names.RESPONSE_HEADERS}) == sent


def test_with_fronts_a_stream_is_opened_again_and_nothing_asks_for_patience() -> None:
    """The header says that the timeout is long: what a queued request were told is an answer."""
    text = bootstrap(options_with(has_fronts=True, message_timeout_s=65.0))
    service = text[: text.index("failure_mode_allow")].rpartition("grpc_service:")[2]
    assert "num_retries: 5" in service and "reset,connect-failure" in service
    assert f"key: {LONG_WAIT}" in service and f"value: {LONG}" in service
    assert LONG_WAIT not in bootstrap(EnvoyOptions())


def test_with_fronts_envoy_says_when_a_request_arrived() -> None:
    """In a header that is written over the client's, on the route to the servers alone, sent to
    the picker, and removed before the server."""
    text = bootstrap(EnvoyOptions(has_fronts=True))
    manager = manager_in(read(text))
    [arrival] = [each for each in manager["http_filters"] if each["name"] == ARRIVAL_FILTER]
    assert arrival["disabled"]
    [step] = arrival["typed_config"]["mutations"]["request_mutations"]
    assert step["append"]["append_action"] == "OVERWRITE_IF_EXISTS_OR_ADD"
    assert step["append"]["header"]["key"] == ARRIVED_AT
    [host] = manager["route_config"]["virtual_hosts"]
    on_routes = [each["name"] for each in host["routes"] if ARRIVAL_FILTER in str(each)]
    assert on_routes == ["llama"]
    assert f"remove: {ARRIVED_AT}" in bootstrap(EnvoyOptions(serves_cluster=False))
    for is_sent in (True, False):
        found = bootstrap(EnvoyOptions(has_fronts=is_sent))
        assert (f"exact: {ARRIVED_AT}" in found) is is_sent
    assert ARRIVAL_FILTER not in bootstrap(EnvoyOptions())


def test_a_body_that_lost_its_front_is_asked_about_again() -> None:
    """Not for a request that has its server, and by a connection of its own. Where Envoy fails
    closed there is nothing to ask about: the client gets an error."""
    asking, again = _asking(has_fronts=True, sends_bodies=True)
    assert again["name"] == AGAIN_FILTER and again["disabled"]
    first, other = asking["typed_config"], again["typed_config"]
    services = [
        each["extension_config"]["typed_config"].pop("grpc_service") for each in (first, other)
    ]
    assert first["extension_config"]["typed_config"] == other["extension_config"]["typed_config"]
    assert first["extension_config"]["typed_config"]["route_cache_action"] == "CLEAR"
    assert [each["envoy_grpc"]["cluster_name"] for each in services] == [
        "coxswain",
        "coxswain-again",
    ]
    has_server, *malformed = other["xds_matcher"]["matcher_list"]["matchers"]
    assert malformed == first["xds_matcher"]["matcher_list"]["matchers"]
    assert header_names.DESTINATION in str(has_server)
    for choices in (
        {"has_fronts": True},
        {"has_fronts": True, "sends_bodies": True, "checks_clients": True},
        {"has_fronts": True, "sends_bodies": True, "mode": Mode.ORIGINAL_DST},
        {"has_fronts": True, "sends_bodies": True, "mode": Mode.GATEWAY},
    ):
        assert len(_asking(**choices)) == 1, choices
        assert processor(**choices)["route_cache_action"] == "RETAIN", choices


def _asking(**choices: Any) -> list[dict[str, Any]]:
    filters = deepcopy(manager(**choices)["http_filters"])
    return [each for each in filters if each["name"] in (EXT_PROC_FILTER, AGAIN_FILTER)]
