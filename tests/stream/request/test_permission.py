"""Claims about extproc/stream/request/permission.py, as exchanges and dry runs apply it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from extproc import header_names
from extproc.core.client_limits import ClientLimit, ClientLimits
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.rejection import Reason
from extproc.core.views.explain import DryRunRequest
from extproc.security.known_keys import KnownKeys, digest_of
from extproc.stream.dry_run import dry_run
from extproc.stream.exchange import Stage
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import ExchangeHarness

WEB = {"authorization": "Bearer sk-web"}
KEYS = KnownKeys({digest_of("sk-web"): "web", digest_of("sk-free"): "free"})
BATCH = Objective(name="batch", criticality=Criticality.SHEDDABLE)
CHAT = Objective(name="chat")


def harness_of(limit: ClientLimit) -> ExchangeHarness:
    """Two servers, of `tiny` and `large`, both also called `small`; `mixed` stands for both."""
    harness = ExchangeHarness(4, 4, splits={"mixed": {"tiny": 1.0, "large": 1.0}})
    harness.serve(number=0)
    harness.serve(model="large", number=1)
    resolver = harness.fleet.dispatcher.options.resolver
    objectives = Objectives(by_name={"batch": BATCH, "chat": CHAT}, by_model={"large": "chat"})
    harness.fleet.dispatcher.resolver.renew(replace(resolver, objectives=objectives))
    limits = ClientLimits({"web": limit})
    harness.options = replace(harness.options, keys=KEYS, limits=limits)
    return harness


def answer(harness: ExchangeHarness, body: Any, **headers: str) -> tuple[int, str] | str | None:
    """The rejection of a chat, or the objective that it has; a dry run says the same."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    exchange = harness.exchange()
    message = envoy.with_body(envoy.request_headers(**(WEB | headers)))
    replies = harness.feed(exchange, message, envoy.body(raw))
    asked = DryRunRequest(
        method="POST", path=envoy.COMPLETION, headers={**WEB, **headers}, body=raw, client=""
    )
    explained = dry_run(harness.fleet.dispatcher, harness.options, asked, harness.fleet.now)
    is_rejected = exchange.stage is Stage.REJECTED
    record = exchange.end(harness.fleet.now)
    assert explained.reason is record.reason
    if is_rejected:
        return envoy.rejection(replies[-1])
    return record.objective


def tiny(**more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [], **more}


@pytest.mark.parametrize(
    ("model", "is_served"),
    [
        *(("tiny", True), ("small", False), ("large", False), ("mixed", False)),
        *(("unknown", False), ("tiny:large", False)),
    ],
)
def test_only_models_of_the_key_are_served(model: str, is_served: bool) -> None:
    """Others do not exist for it, nor a name that may mean one of them."""
    harness = harness_of(ClientLimit(models=frozenset({"tiny"})))
    found = answer(harness, {"model": model, "messages": []})
    assert found == ("" if is_served else (404, "model-not-found"))
    if is_served:
        assert harness.asked[-1].is_strict


@pytest.mark.parametrize("body", [{"messages": []}, b"row", b'{"messages": ['])
def test_a_request_whose_model_is_not_known_is_rejected(body: Any) -> None:
    """Also with a header that says one: the server reads the body."""
    harness = harness_of(ClientLimit(models=frozenset({"tiny"})))
    assert answer(harness, body) == (400, "bad-request")
    if isinstance(body, bytes):
        named = {"x-gateway-model-name": "tiny"}
        assert answer(harness, body, **named) == (400, "bad-request")


def test_another_key_may_use_all_models() -> None:
    harness = harness_of(ClientLimit(models=frozenset({"tiny"})))
    free = {"authorization": "Bearer sk-free"}
    assert answer(harness, {"model": "unknown", "messages": []}, **free) == ""


@pytest.mark.parametrize(
    ("asked", "model", "objectives", "found"),
    [
        ("batch", "tiny", ("batch",), "batch"),
        ("chat", "tiny", ("batch",), (403, "objective-not-allowed")),
        ("unknown", "tiny", ("batch",), (403, "objective-not-allowed")),
        (None, "tiny", ("batch", "chat"), "batch"),
        (None, "large", ("batch",), "batch"),
        (None, "large", ("batch", "chat"), "chat"),
    ],
)
def test_objectives_of_the_key(
    asked: str | None, model: str, objectives: tuple[str, ...], found: Any
) -> None:
    """One that is not asked for is the model's, if the key may use that, or the first."""
    harness = harness_of(ClientLimit(objectives=objectives))
    headers = {} if asked is None else {"x-gateway-inference-objective": asked}
    assert answer(harness, {"model": model, "messages": []}, **headers) == found


def test_the_list_of_models_has_those_of_the_key() -> None:
    harness = harness_of(ClientLimit(models=frozenset({"tiny"})))
    harness.serve("poet")

    def listed(path: str = "/v1/models") -> Any:
        (reply,) = harness.feed(harness.exchange(), envoy.request_headers(path, "GET", **WEB))
        return json.loads(reply.immediate_response.body)

    assert [each["id"] for each in listed()["data"]] == ["tiny", "tiny:poet"]
    assert listed("/v1/models/tiny")["id"] == "tiny"
    assert listed("/v1/models/large")["error"]["code"] == "model_not_found"
    asked = DryRunRequest(method="GET", path="/v1/models/large", headers=WEB, body=b"", client="")
    explained = dry_run(harness.fleet.dispatcher, harness.options, asked, harness.fleet.now)
    assert explained.reason is Reason.MODEL_NOT_FOUND


@pytest.mark.parametrize(
    ("method", "path", "body", "is_served"),
    [
        ("POST", "/tokenize", {"model": "tiny", "content": "row"}, True),
        ("POST", "/tokenize", {"model": "large", "content": "row"}, False),
        ("POST", "/tokenize", {"content": "row"}, True),
        ("GET", "/props?model=large", None, False),
        ("GET", "/props?model=tiny", None, True),
        ("GET", "/props", None, True),
    ],
)
def test_requests_without_a_slot_may_name_its_models_only(
    method: str, path: str, body: Any, is_served: bool
) -> None:
    harness = harness_of(ClientLimit(models=frozenset({"tiny"})))
    exchange = harness.exchange()
    message = envoy.request_headers(path, method, **WEB)
    raw = b"" if body is None else json.dumps(body).encode()
    messages = [message] if body is None else [envoy.with_body(message), envoy.body(raw)]
    harness.feed(exchange, *messages)
    assert (exchange.stage is Stage.PASSING) is is_served
    exchange.end(harness.fleet.now)
    plain, _, _ = path.partition("?")
    asked = DryRunRequest(method=method, path=path, headers=WEB, body=raw, client="")
    explained = dry_run(harness.fleet.dispatcher, harness.options, asked, harness.fleet.now)
    assert explained.reason is (None if is_served else Reason.MODEL_NOT_FOUND), plain


@pytest.mark.parametrize(
    ("key", "name", "expected"),
    [
        ("sk-free", "web", (404, "model-not-found")),
        ("sk-free", "free", "chat"),
        ("sk-free", "", "chat"),
        ("sk-free", "gone", (401, "invalid-api-key")),
        ("sk-web", "free", (404, "model-not-found")),
    ],
)
def test_a_line_of_a_batch_has_the_permissions_of_who_submitted_it(
    key: str, name: str, expected: tuple[int, str] | str
) -> None:
    """Only the client that is set may send requests for others."""
    harness = harness_of(ClientLimit(models=frozenset({"tiny"})))
    harness.options = replace(harness.options, batches="free")
    headers = {"authorization": f"Bearer {key}"}
    if name:
        headers[header_names.FAIRNESS_ID[0]] = name
    assert answer(harness, {"model": "large", "messages": []}, **headers) == expected


def test_a_line_of_a_batch_counts_for_who_submitted_it() -> None:
    harness = harness_of(ClientLimit(requests=1))
    harness.options = replace(harness.options, batches="free")
    headers = {"authorization": "Bearer sk-free", header_names.FAIRNESS_ID[0]: "web"}
    body = envoy.body(json.dumps(tiny()).encode())
    line, second = harness.exchange(), harness.exchange()
    harness.feed(line, envoy.with_body(envoy.request_headers(**headers)), body)
    assert line.client == "web" and harness.options.limits.running("web") == (1, 0)
    (reply,) = harness.feed(second, envoy.request_headers(**WEB))
    assert envoy.rejection(reply) == (429, "rate-limited")
