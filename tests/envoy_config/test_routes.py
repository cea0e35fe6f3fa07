"""Claims about extproc/envoy_config/routes.py: what goes where, in which order."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from extproc.core.request import Kind
from extproc.envoy_config.names import AGAIN_FILTER
from extproc.envoy_config.options import HostPort, Mode
from extproc.envoy_config.routes import LONG_BODY_BYTES
from extproc.header_names import DESTINATION, PREFLIGHT, UPLOAD
from extproc.runners.apis import CLOSED as CLOSED_TEXT
from extproc.runners.apis import SLOT_PATHS
from extproc.settings.envoy_section import EnvoySettings
from extproc.stream.request.paths import Paths
from tests.envoy_config.parts import manager, routes

RULES = ("/slots*", "POST /props", "/metrics")


CLOSED = [
    *(f"closed-{number}" for number in (1, 2, 3)),
    *("closed-post-1", "closed-delete-1"),
    *(f"closed-plain-{number}" for number in (1, 2)),
]
UNKNOWN = ["unknown-delete", "unknown-get", "unknown-post", "unknown"]


def test_what_is_blocked_comes_first_then_what_is_not_open_and_the_servers_last() -> None:
    """Before all, browsers' preflights; one for escapes that hide something; the queue; one model.
    What is closed on purpose comes before what is unknown, by a route for each method."""
    names = [route["name"] for route in routes(blocked_paths=RULES)]
    first = ["preflight", "blocked-escape"]
    blocked = ["blocked-1", "blocked-post-1"]
    assert names == [*first, *blocked, "queue", *CLOSED, "model", *UNKNOWN, "llama"]
    opened = (*RULES, "DELETE /models")
    names = [route["name"] for route in routes(status=None, open_paths=opened)]
    assert names == [*first, *CLOSED, "model", *UNKNOWN, "llama"]


@pytest.mark.parametrize("prefix", ["", "/llama"])
def test_connections_are_left_to_the_next_request_by_those_never_streamed(prefix: str) -> None:
    """All others ask the server to say that it hangs up. But for that, all go the same way."""
    alone = routes(path_prefix=prefix)[-1]
    assert "request_headers_to_add" not in alone
    printed = routes(path_prefix=prefix, reuse_connections=True)
    *leaving, last = (route for route in printed if route["name"].startswith("llama"))
    (header,) = last["request_headers_to_add"]
    assert header["header"] == {"key": "connection", "value": "close"}
    assert {**last, "request_headers_to_add": None} == {**alone, "request_headers_to_add": None}
    for route in leaving:
        assert {**route, "name": 0, "match": 0} == {**alone, "name": 0, "match": 0}
    for method, path in ASKED:
        is_unstreamed = method == "POST" and SLOT_PATHS.get(path) is Kind.EMBEDDING
        for begin in {"", prefix}:
            taken = next(each for each in printed if _takes(each["match"], method, begin + path))
            assert (taken in leaving) == is_unstreamed, (method, begin + path)


def test_a_preflight_is_answered_for_every_path() -> None:
    preflight = routes(blocked_paths=RULES)[0]
    assert preflight["match"]["prefix"] == "/"
    assert preflight["match"]["headers"][0]["string_match"] == {"exact": "OPTIONS"}
    assert preflight["direct_response"] == {"status": 200}
    told = [each["header"] for each in preflight["response_headers_to_add"]]
    assert told == [{"key": name, "value": value} for name, value in PREFLIGHT.items()]
    assert "typed_per_filter_config" not in preflight, "the picker is not asked"


def test_the_picker_is_asked_about_a_model_and_no_server() -> None:
    """Without it Envoy itself says that nothing is there."""
    (model,) = (route for route in routes() if route["name"] == "model")
    assert list(model["typed_per_filter_config"]) == ["envoy.filters.http.ext_proc"]
    assert model["direct_response"]["status"] == 404


def test_a_rejection_says_what_it_is() -> None:
    """By Envoy alone: 403 or 404, OpenAI's shape, and the reason as a header."""
    rejections = [route for route in routes(blocked_paths=RULES) if "direct_response" in route][1:]
    assert len(rejections) == 15
    for route in rejections:
        is_unknown = route["name"].startswith("unknown") or route["name"] == "model"
        reason = "unknown-path" if is_unknown else "blocked-path"
        assert route["direct_response"]["status"] == (404 if is_unknown else 403)
        body = json.loads(route["direct_response"]["body"]["inline_string"])
        if route["name"].startswith("closed-plain"):
            assert body == {"error": CLOSED_TEXT}, "as Ollama's clients read it"
        else:
            assert body["error"]["code"] == reason
        told = [each["header"] for each in route["response_headers_to_add"]]
        assert {"key": "x-coxswain-reason", "value": reason} in told
    (post,) = (route for route in rejections if route["name"] == "blocked-post-1")
    (method,) = post["match"]["headers"]
    assert method["string_match"] == {"exact": "POST"}


ASKED = [
    (method, path)
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE")
    for path in (
        *SLOT_PATHS,
        *(
            "/",
            "/props",
            "/slots",
            "/slots/0",
            "/v1/stream",
            "/v1/stream/abc",
            "/v1/streams/lookup",
            "/x.js",
            "/models",
            "/models/load",
            "/models/sse",
            "/v1/models/a/b",
            "/llama/models/a",
        ),
        *("/llama/props", "/llama/completion", "/other/props", "/x/y.js", "/open/a", "/open/shut"),
        *("/PROPS", "/health/", "/%u0073lots", "/metrics"),
    )
]


@pytest.mark.parametrize(
    ("prefix", "opened", "blocked"),
    [
        ("", (), ()),
        ("/llama", ("/open*", "DELETE /models"), ("/open/shut", "GET /", "POST /infill")),
        ("", ("/*",), ("/slots*", "/metrics")),
    ],
)
def test_routes_and_picker_agree(
    prefix: str, opened: tuple[str, ...], blocked: tuple[str, ...]
) -> None:
    """Which of all these reaches a server, and why not, said by the printed patterns and by the
    picker."""
    printed = routes(path_prefix=prefix, open_paths=opened, blocked_paths=blocked, status=None)
    rules = EnvoySettings(open_paths=opened, blocked_paths=blocked)
    paths = Paths(prefix, opened=rules.opened, blocked=rules.blocked)
    for method, path in ASKED:
        taken = next(route for route in printed if _takes(route["match"], method, path))
        if taken["name"] == "model" or paths.asks_for_model(method, path) is not None:
            assert paths.asks_for_model(method, path) is not None, (method, path)
            assert taken["name"] in ("model", "llama"), (method, path)
            continue
        assert ("direct_response" in taken) == paths.is_closed(method, path), (method, path)
        reason = paths.why_closed(method, path)
        if reason is not None:
            body = json.loads(taken["direct_response"]["body"]["inline_string"])
            assert body["error"]["code"] == reason.value, (method, path, taken["name"])


def _takes(match: dict[str, Any], method: str, path: str) -> bool:
    """As Envoy does, with a query that no rule is about."""
    told = {":method": method, ":path": f"{path}?a=/slots"}
    for header in match.get("headers", ()):
        wanted = header["string_match"]
        regex = wanted["safe_regex"]["regex"] if "safe_regex" in wanted else wanted["exact"]
        is_met = re.fullmatch(regex, told[header["name"]]) is not None
        if is_met == header.get("invert_match", False):
            return False
    return "prefix" in match or bool(re.fullmatch(match["safe_regex"]["regex"], path))


def test_the_queue_is_asked_of_the_pickers_pages() -> None:
    """With GET alone, and for as long as the request waits."""
    (queue,) = (route for route in routes() if route["name"] == "queue")
    assert queue["match"]["headers"][0]["string_match"] == {"exact": "GET"}
    assert queue["route"]["cluster"] == "coxswain-status"
    assert (queue["route"]["timeout"], queue["route"]["idle_timeout"]) == ("0s", "0s")


def test_batches_are_a_process_of_their_own() -> None:
    """Where they are served; the picker is not asked, and what is below no id is unknown."""
    assert "batches" not in [route["name"] for route in routes()]
    found = routes(batches="127.0.0.1:9006", path_prefix="/llm")
    (batches,) = (route for route in found if route["name"] == "batches")
    assert batches["route"]["cluster"] == "coxswain-batches"
    assert "typed_per_filter_config" not in batches
    assert batches["route"]["regex_rewrite"]["substitution"] == "/v1/"
    pattern = re.compile(batches["match"]["safe_regex"]["regex"])
    for path in ("/v1/files", "/v1/files/a-1/content", "/llm/v1/batches/b_2/cancel"):
        assert pattern.fullmatch(path), path
    for path in ("/v1/files/", "/v1/filesystem", "/v1/files/a/b/c", "/v1/files/../models"):
        assert not pattern.fullmatch(path), path


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


def test_a_body_with_which_a_front_may_be_lost_is_tried_once() -> None:
    """What the router keeps to try again it would send twice. The picker's word decides, in
    metadata, which clients cannot set."""
    printed = routes(has_fronts=True, sends_bodies=True, reuse_connections=True)
    found = {route["name"]: route for route in printed}
    ways = [each["name"] for each in routes(reuse_connections=True) if "llama" in each["name"]]
    assert [name for name in found if name.startswith("llama")] == [
        f"{name}{kind}"
        for name in ways
        for kind in ("-uploading", "-decided", "-long", "-unsized", "")
    ]
    for name in ("llama", "llama-decided"):
        assert found[name]["route"]["retry_policy"]["num_retries"] == 3
        assert AGAIN_FILTER not in found[name]["typed_per_filter_config"]
    for kind in ("uploading", "long", "unsized"):
        route = found[f"llama-{kind}"]
        assert "retry_on" not in route["route"]["retry_policy"], kind
        assert AGAIN_FILTER in route["typed_per_filter_config"], kind
        others = set(route["typed_per_filter_config"]) - {AGAIN_FILTER}
        assert others == set(found["llama"]["typed_per_filter_config"])
    for kind, key in (("uploading", UPLOAD), ("decided", DESTINATION)):
        [known] = found[f"llama-{kind}"]["match"]["dynamic_metadata"]
        assert (known["filter"], known["path"]) == ("envoy.lb", [{"key": key}])
    [length] = found["llama-long"]["match"]["headers"]
    assert int(length["range_match"]["start"]) == LONG_BODY_BYTES < 64 * 1024
    unstreamed = found["llama-unstreamed-1-unsized"]["match"]
    assert unstreamed["safe_regex"] == found["llama-unstreamed-1"]["match"]["safe_regex"]
    assert [each["name"] for each in unstreamed["headers"]] == [
        *(":method", ":method", "content-length")
    ]


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
