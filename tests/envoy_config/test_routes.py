"""Claims about extproc/envoy_config/routes.py: what goes where, in which order."""

from __future__ import annotations

import json

import pytest

from extproc.core.blocked_path import BlockedPath
from extproc.envoy_config.options import HostPort, Mode
from tests.envoy_config.parts import manager, routes

RULES = tuple(BlockedPath.parse(rule) for rule in ("/slots*", "POST /props", "/metrics"))


def test_closed_paths_come_first_and_the_servers_last() -> None:
    """One route for each method, one for escapes that hide something, then the queue."""
    names = [route["name"] for route in routes(blocked_paths=RULES)]
    assert names == ["blocked-escape", "blocked", "blocked-post", "queue", "llama"]


def test_nothing_closed_nothing_refused() -> None:
    assert [route["name"] for route in routes(blocked_paths=(), status=None)] == ["llama"]


def test_a_refusal_says_what_it_is() -> None:
    """By Envoy alone: 403, OpenAI's shape, and the reason as a header."""
    refusals = [route for route in routes(blocked_paths=RULES) if "direct_response" in route]
    assert len(refusals) == 3
    for route in refusals:
        assert route["direct_response"]["status"] == 403
        body = json.loads(route["direct_response"]["body"]["inline_string"])
        assert body["error"]["code"] == "blocked-path"
        told = [each["header"] for each in route["response_headers_to_add"]]
        assert {"key": "x-coxswain-reason", "value": "blocked-path"} in told
    (post,) = (route for route in refusals if route["name"] == "blocked-post")
    (method,) = post["match"]["headers"]
    assert method["string_match"] == {"exact": "POST"}


def test_the_queue_is_asked_of_the_pickers_pages() -> None:
    """With GET alone, and for as long as the request waits."""
    (queue,) = (route for route in routes() if route["name"] == "queue")
    assert queue["match"]["headers"][0]["string_match"] == {"exact": "GET"}
    assert queue["route"]["cluster"] == "coxswain-status"
    assert (queue["route"]["timeout"], queue["route"]["idle_timeout"]) == ("0s", "0s")


def test_a_try_is_repeated_only_where_no_server_began() -> None:
    """On the next of the list, never on one that was tried; 503 is a model that still loads."""
    policy = routes(retries=5, per_try_idle_timeout_s=9)[-1]["route"]["retry_policy"]
    causes = policy["retry_on"].split(",")
    assert causes == [
        *("connect-failure", "refused-stream", "reset-before-request"),
        "retriable-status-codes",
    ]
    assert policy["retriable_status_codes"] == [503]
    assert (policy["num_retries"], policy["per_try_idle_timeout"]) == (5, "9s")
    (predicate,) = policy["retry_host_predicate"]
    assert predicate["name"].endswith("previous_hosts")


@pytest.mark.parametrize(("retries", "tries"), [(0, 0), (3, 1)])
def test_without_a_list_there_is_one_server_to_try_again(retries: int, tries: int) -> None:
    route = routes(mode=Mode.ORIGINAL_DST, retries=retries)[-1]["route"]
    assert route["retry_policy"].get("num_retries", 0) == tries
    assert "retriable-status-codes" not in route["retry_policy"]["retry_on"]


def test_what_is_kept_of_a_body() -> None:
    assert routes(body_buffer_bytes=123)[-1]["request_body_buffer_limit"] == 123


def test_the_hosts_name_is_rewritten_only_if_asked_for() -> None:
    assert "auto_host_rewrite" not in routes()[-1]["route"]
    assert routes(host_rewrite=True)[-1]["route"]["auto_host_rewrite"] is True


def test_a_served_cluster_need_not_be_there_yet() -> None:
    """Envoy would refuse a route to a cluster that the picker tells of later."""
    served = manager(serves_cluster=True, status=HostPort("127.0.0.1", 9090))["route_config"]
    assert served["validate_clusters"] is False
    assert "validate_clusters" not in manager()["route_config"]
