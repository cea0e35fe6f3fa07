"""Claims about extproc/stream/request/reader.py: what is read before the decision."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from extproc import header_names
from extproc.core.exchange_record import Outcome
from extproc.core.rejection import Reason
from extproc.pb import external_processor_pb2 as pb
from extproc.security.known_keys import KnownKeys, digest_of
from extproc.settings.envoy_section import EnvoySettings
from extproc.stream.exchange import Stage
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import (
    BODY,
    ExchangeHarness,
    ask,
    ask_duplex,
    hinted,
    streamed,
)

# Asking for the body


@pytest.mark.parametrize("asked", [ask, ask_duplex])
def test_the_decision_is_dated_by_the_body(asked: Any) -> None:
    """Not by the headers; who leaves before it, was never decided on."""
    harness = ExchangeHarness(4)
    exchange, leaver = harness.exchange(), harness.exchange()
    for one in (exchange, leaver):
        harness.feed(one, asked())
    harness.fleet.now += 5.0
    harness.feed(exchange, envoy.body(BODY))
    told = exchange.end(harness.fleet.now)
    assert told.decided_at == told.began_at + 5.0
    told = leaver.end(harness.fleet.now)
    assert (told.outcome, told.decided_at) == (Outcome.WITHDRAWN, None)
    assert told.criticality == "standard"


def test_what_takes_no_slot_has_no_class() -> None:
    """Whether it passes or is rejected."""
    harness = ExchangeHarness(1)
    passing, rejected = harness.exchange(), harness.exchange()
    harness.feed(passing, envoy.request_headers(path="/v1/models"))
    harness.feed(rejected, envoy.request_headers(path=""))
    assert [one.end(harness.fleet.now).criticality for one in (passing, rejected)] == ["", ""]


@pytest.mark.parametrize(
    "header", [{"content_type": "audio/wav"}, {"content_type": "application/octet-stream"}]
)
def test_a_body_that_reports_nothing_is_waited_for_too(header: dict[str, str]) -> None:
    """Who only announces a body occupies no slot; when it came it is not read, nor judged."""
    harness = ExchangeHarness(4, is_strict=True)
    exchange = harness.exchange()
    harness.feed(exchange, envoy.with_body(envoy.request_headers(**header)))
    assert exchange.stage is Stage.READING and harness.asked == []
    (answer,) = harness.feed(exchange, envoy.body(b"--x\r\n{"))
    assert header_names.DESTINATION in envoy.set_headers(
        answer.request_body.response.header_mutation
    )
    assert (harness.asked[0].model, harness.asked[0].weight_slots) == (None, 1)


def test_reading_can_be_switched_off() -> None:
    """Then a request weighs one slot, and its length is guessed."""
    harness = ExchangeHarness(4, reads_bodies=False)
    replies = harness.feed(harness.exchange(), ask(content_length="4000"))
    assert envoy.destination(replies[0])
    assert (harness.asked[0].weight_slots, harness.asked[0].prompt_tokens) == (1, 1000)


def test_only_the_beginning_of_a_long_body_is_read() -> None:
    """The rest passes Envoy by; its length counts all the same."""
    harness = ExchangeHarness(4, limit_bytes=600, kept_bytes=30_000)
    length = {"content-length": "1000000"}
    message = envoy.with_body(envoy.request_headers(**length))
    body = json.dumps({"model": "tiny", "prompt": "row " * 10_000}).encode()
    harness.feed(harness.exchange(), message, envoy.body(body, end_of_stream=False))
    request = harness.asked[0]
    assert (request.model, request.prompt_tokens) == ("tiny", 250_000)
    assert len(request.prompt_blocks) == 2


def test_the_model_behind_a_long_prompt_is_read() -> None:
    """Clients write it there."""
    harness = ExchangeHarness(4, limit_bytes=600)
    body = json.dumps({"prompt": "row " * 10_000, "model": "tiny", "n": 3}).encode()
    harness.feed(harness.exchange(), ask(), envoy.body(body))
    request = harness.asked[0]
    assert (request.model, request.weight_slots, len(request.prompt_blocks)) == ("tiny", 3, 2)


def test_a_body_waits_as_headers_do() -> None:
    """No slot free: the answer about the body is the one that waits."""
    harness = ExchangeHarness(1)
    lease = harness.fleet.pick()
    exchange = harness.exchange()
    assert len(harness.feed(exchange, ask(), envoy.body(b"{}"))) == 1
    assert exchange.stage is Stage.QUEUED and exchange.ticket is not None
    harness.fleet.listener.on_settled = lambda _, settlement: exchange.settle(settlement)
    harness.fleet.finish(lease)
    answer = exchange.take_reply()
    assert answer is not None and answer.WhichOneof("response") == "request_body"


def test_a_client_that_leaves_while_its_body_is_awaited() -> None:
    harness = ExchangeHarness(1)
    exchange = harness.exchange()
    harness.feed(exchange, ask())
    assert exchange.end(harness.fleet.now).outcome is Outcome.WITHDRAWN


def test_a_body_that_never_comes() -> None:
    """Envoy does not allow mode overrides: it chose by itself, and nothing is held."""
    harness = ExchangeHarness(1)
    exchange = harness.exchange()
    harness.feed(exchange, ask(), envoy.response_headers(served=str(harness.fleet.addresses[0])))
    assert exchange.end(harness.fleet.now).outcome is Outcome.PASSED
    assert harness.asked == []


@pytest.mark.parametrize(
    "body", [b"", b"row", b"[]", b'{"model":', b'{"a":1,"a":2}', b'{"a":1e999}']
)
def test_strictly_a_body_that_cannot_be_read_is_rejected(body: bytes) -> None:
    harness = ExchangeHarness(1, is_strict=True)
    rejected = harness.feed(harness.exchange(), ask(), envoy.body(body))[-1]
    assert envoy.rejection(rejected) == (400, "bad-request")
    lenient = ExchangeHarness(1)
    answer = lenient.feed(lenient.exchange(), ask(), envoy.body(body))[-1]
    assert answer.HasField("request_body")


def test_the_heads_wishes_reach_the_core() -> None:
    """Under their own names and under their older ones."""
    harness = ExchangeHarness(4)
    wishes = {
        "x_gateway_inference_objective": "chat",
        "x_llm_d_inference_fairness_id": "team-a",
        "x_slo_ttft_ms": "250",
        "x_session_id": "s1",
        "x_request_id": "r1",
        "x_coxswain_queue_timeout_ms": "1500",
    }
    answer = harness.feed(harness.exchange(), ask(**wishes), envoy.body(BODY))[-1]
    asked = harness.asked[0]
    assert (asked.objective, asked.fairness_id, asked.ttft_s) == ("chat", "team-a", 0.25)
    assert (asked.session_id, asked.id, asked.timeout_s) == ("s1", "r1", 1.5)
    assert sorted(answer.request_body.response.header_mutation.remove_headers) == [
        "x-coxswain-queue-timeout-ms",
        "x-gateway-inference-objective",
        "x-llm-d-inference-fairness-id",
        "x-slo-ttft-ms",
    ]


def test_tenants_are_distinguished_by_their_keys() -> None:
    """Without the key itself being kept."""
    harness = ExchangeHarness(4)
    for key in ("Bearer a", "Bearer a", "Bearer b"):
        harness.feed(harness.exchange(), envoy.request_headers(authorization=key))
    tenants = [request.tenant for request in harness.asked]
    assert tenants[0] == tenants[1] != tenants[2]
    assert not any("Bearer" in tenant or tenant == "" for tenant in tenants)


def test_a_tenant_is_whose_key_it_shows() -> None:
    """What the client itself says only divides its part. The server is shown the name, not the
    key."""
    harness = with_keys()
    for headers in (
        {"authorization": "Bearer sk-web"},
        {"x_api_key": "sk-web", "x_coxswain_client": "batch"},
        {"authorization": "Bearer sk-batch"},
        {"authorization": "Bearer sk-web", "x_gateway_inference_fairness_id": "team-a"},
    ):
        reply = harness.feed(harness.exchange(), envoy.request_headers(**headers))[0]
        changes = reply.request_headers.response.header_mutation
        sent = {one.header.key: one.header.raw_value.decode() for one in changes.set_headers}
        assert sent["x-coxswain-client"] == harness.asked[-1].tenant.removeprefix("client-")
        shown = {key.replace("_", "-") for key in headers} & {"authorization", "x-api-key"}
        assert shown <= set(changes.remove_headers)
    assert [(request.tenant, request.fairness_id) for request in harness.asked] == [
        ("client-web", ""),
        ("client-web", ""),
        ("client-batch", ""),
        ("client-web", "team-a"),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer sk-other"},
        {"x_coxswain_client": "web"},
        {"x_coxswain_queue_timeout_ms": "soon"},
    ],
)
@pytest.mark.parametrize("path", [envoy.COMPLETION, "/v1/models", "/props", "/slots"])
def test_without_a_clients_key_nothing_is_answered(headers: dict[str, str], path: str) -> None:
    """Whatever the path, and whatever else is wrong."""
    harness = with_keys()
    exchange = harness.exchange()
    (reply,) = harness.feed(exchange, envoy.request_headers(path, **headers))
    assert reply.immediate_response.status.code == 401
    error = json.loads(reply.immediate_response.body)["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid-api-key")
    record = exchange.end(harness.fleet.now)
    assert (record.outcome, record.reason) == (Outcome.REJECTED, Reason.INVALID_API_KEY)
    assert not harness.asked


def with_keys() -> ExchangeHarness:
    harness = ExchangeHarness(9)
    keys = KnownKeys({digest_of("sk-web"): "web", digest_of("sk-batch"): "batch"})
    harness.options = replace(harness.options, keys=keys)
    return harness


# Subsets


def test_a_hint_bounds_the_choice() -> None:
    harness = ExchangeHarness(1, 9, 9)
    first = str(harness.fleet.addresses[0])
    for path in (envoy.COMPLETION, "/tokenize"):
        reply = harness.feed(harness.exchange(), hinted(envoy.request_headers(path), first))[0]
        assert envoy.destination(reply) == [first]


@pytest.mark.parametrize("path", [envoy.COMPLETION, "/tokenize"])
def test_a_hint_that_leaves_nobody(path: str) -> None:
    """503 at once, whatever is asked for."""
    harness = ExchangeHarness(1)
    for addresses in ((), ("10.9.9.9:1",)):
        exchange = harness.exchange()
        rejected = harness.feed(exchange, hinted(envoy.request_headers(path), *addresses))[0]
        assert envoy.rejection(rejected) == (503, "no-endpoint")
        assert exchange.end(harness.fleet.now).reason is Reason.NO_ENDPOINT


# Adapters and models


def split_desk(**reading: Any) -> ExchangeHarness:
    """A plain server of `tiny`, and a router that could load it; `chat` stands for `tiny`."""
    harness = ExchangeHarness(4, 4, splits={"chat": {"tiny": 1.0}}, **reading)
    harness.serve(number=1)
    harness.route()
    return harness


@pytest.mark.parametrize("is_duplex", [False, True])
def test_the_model_that_a_name_stands_for_is_sent_to_the_server(is_duplex: bool) -> None:
    """However long the body is, if all of it is here."""
    harness = split_desk(limit_bytes=200)
    body = json.dumps({"model": "chat", "prompt": "row " * 4000}).encode()
    message = ask_duplex() if is_duplex else ask()
    replies = harness.feed(harness.exchange(), message, envoy.body(body))
    sent = (
        streamed(replies[1:]) if is_duplex else replies[-1].request_body.response.body_mutation.body
    )
    assert sent.startswith(body[:-1]) and json.loads(sent)["model"] == "tiny"
    assert not harness.asked[0].is_verbatim


@pytest.mark.parametrize("is_duplex", [False, True])
def test_a_name_that_cannot_be_changed_is_never_sent_to_a_router(is_duplex: bool) -> None:
    """The rest of the body is still to come: only a plain server, which does not read it, may
    serve; with routers alone it is a clear 400."""
    harness = split_desk(limit_bytes=200, kept_bytes=9000)
    body = json.dumps({"model": "chat", "prompt": "row " * 4000}).encode()
    messages = (
        ask_duplex() if is_duplex else ask(),
        envoy.body(body[:9000], end_of_stream=False),
    )
    for _ in range(4):
        replies = harness.feed(harness.exchange(), *messages)
        response = replies[-1 if not is_duplex else 0]
        kind = "request_headers" if is_duplex else "request_body"
        headers = envoy.set_headers(getattr(response, kind).response.header_mutation)
        assert headers == {
            header_names.DESTINATION: str(harness.fleet.addresses[1]),
            "x-envoy-max-retries": "0",
        }
    routers = ExchangeHarness(4, splits={"chat": {"tiny": 1.0}}, limit_bytes=200, kept_bytes=9000)
    routers.route()
    rejected = routers.feed(routers.exchange(), *messages)[-1]
    assert envoy.rejection(rejected) == (400, "bad-request")
    assert routers.asked == []


def test_the_models_of_the_fleet() -> None:
    """Each once, with its aliases and adapters; answered without any server."""
    harness = ExchangeHarness(4, 4)
    harness.serve("pirate")
    harness.serve(number=1, model="large")
    exchange = harness.exchange()
    (answer,) = harness.feed(exchange, envoy.request_headers("/v1/models", "GET"))
    assert answer.immediate_response.status.code == 200
    listed = json.loads(answer.immediate_response.body)
    assert [model["id"] for model in listed["data"]] == ["tiny", "tiny:pirate", "large"]
    assert listed["data"][0]["aliases"] == ["small"]
    assert {model["created"] for model in listed["data"]} == {7}
    record = exchange.end(harness.fleet.now)
    assert (record.outcome, record.endpoint) == (Outcome.PASSED, None)


def test_models_of_servers_that_leave_are_not_listed() -> None:
    """Nor those of servers that a gateway's hint leaves out."""
    harness = ExchangeHarness(4, 4)
    harness.serve()
    harness.serve(number=1, model="large")
    body_mode = envoy.request_headers("/v1/models", "GET")

    def listed(message: pb.ProcessingRequest) -> list[str]:
        (answer,) = harness.feed(harness.exchange(), message)
        return [one["id"] for one in json.loads(answer.immediate_response.body)["data"]]

    second = hinted(envoy.request_headers("/v1/models", "GET"), str(harness.fleet.addresses[1]))
    assert (listed(body_mode), listed(second)) == (["tiny", "large"], ["large"])
    for _ in range(5):
        harness.feed(harness.exchange(), ask(), envoy.body(b"{}"))
    harness.fleet.name(harness.fleet.addresses[0])
    assert len(harness.fleet.dispatcher.fleet) == 2
    assert listed(body_mode) == ["tiny"]


def test_while_no_model_is_known_a_server_is_asked() -> None:
    harness = ExchangeHarness(4)
    reply = harness.feed(harness.exchange(), envoy.request_headers("/v1/models", "GET"))[0]
    assert envoy.destination(reply)


def test_the_health_of_the_fleet_is_a_servers_unless_it_is_asked_for() -> None:
    """With the setting the picker itself shows all slots, busy or not; without a slot it is 503."""
    harness = ExchangeHarness(2, 1)
    ask_health = envoy.request_headers("/health", "GET")
    assert envoy.destination(harness.feed(harness.exchange(), ask_health)[0])
    harness.options = replace(harness.options, envoy=EnvoySettings(health=True))
    harness.fleet.pick()
    (answer,) = harness.feed(harness.exchange(), ask_health)
    immediate = answer.immediate_response
    assert immediate.status.code == 200
    assert json.loads(immediate.body) == {"status": "ok", "slots_idle": 2, "slots_processing": 1}
    harness.fleet.name()
    (answer,) = harness.feed(harness.exchange(), ask_health)
    assert (answer.immediate_response.status.code, harness.asked) == (503, [])


def test_health_needs_no_clients_key() -> None:
    """Balancers have none; all else needs one."""
    harness = ExchangeHarness(1)
    keys = KnownKeys({})
    harness.options = replace(harness.options, envoy=EnvoySettings(health=True), keys=keys)
    (answer,) = harness.feed(harness.exchange(), envoy.request_headers("/health", "GET"))
    assert answer.immediate_response.status.code == 200
    (answer,) = harness.feed(harness.exchange(), envoy.request_headers("/props", "GET"))
    assert answer.immediate_response.status.code == 401
