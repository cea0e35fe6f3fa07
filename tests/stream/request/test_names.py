"""Claims about extproc/stream/request/names.py: the names of models and adapters."""

from __future__ import annotations

import json

import pytest

from extproc import header_names
from extproc.core.address import Address
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.resolver import RequestResolver
from extproc.core.observation import ModelReading
from extproc.stream.envoy.codec import RequestHead
from extproc.stream.exchange import Stage
from extproc.stream.request.body import RequestBody
from extproc.stream.request.names import BOTH, NOT_WHOLE, names_of, validate_names
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import (
    BODY,
    ExchangeHarness,
    ask,
    ask_duplex,
    streamed,
)
from tests.fakes.steered_fleet import SteeredFleet

LONG_CHAT = json.dumps({"prompt": "row " * 10_000, "model": "tiny"}).encode()


@pytest.mark.parametrize(
    ("match", "must_know_models"),
    [(ModelMatch.LENIENT, False), (ModelMatch.LENIENT, True), (ModelMatch.STRICT, False)],
)
@pytest.mark.parametrize("is_duplex", [False, True])
def test_a_model_that_cannot_be_read_is_guessed_at_only_if_the_settings_say_so(
    is_duplex: bool, match: ModelMatch, must_know_models: bool
) -> None:
    """The body is longer than what Envoy keeps. A gateway's word counts, or one model alone."""
    is_strict = match is ModelMatch.STRICT or must_know_models
    harness = ExchangeHarness(
        *(4, 4), limit_bytes=600, kept_bytes=30_000, match=match, must_know_models=must_know_models
    )
    part = envoy.body(LONG_CHAT[:30_000], end_of_stream=False)
    begin = ask_duplex if is_duplex else ask
    harness.serve()
    assert header_names.DESTINATION in str(harness.feed(harness.exchange(), begin(), part))
    harness.serve(number=1, model="large")
    named = begin(x_gateway_model_name="tiny")
    assert str(harness.fleet.addresses[0]) in str(harness.feed(harness.exchange(), named, part))
    assert harness.asked[-1].model == "tiny"
    replies = harness.feed(harness.exchange(), begin(), part)
    if is_strict:
        assert envoy.rejection(replies[-1]) == (400, "bad-request")
        assert "x-gateway-model-name" in replies[-1].immediate_response.body.decode()
    else:
        assert header_names.DESTINATION in str(replies)
    assert len(harness.asked) == (2 if is_strict else 3)


def test_the_body_counts_before_a_gateways_word() -> None:
    """It is what the server reads. Without reading bodies the gateway's word is all there is."""
    for reads_bodies, model in ((True, "tiny"), (False, "large")):
        harness = ExchangeHarness(4, reads_bodies=reads_bodies)
        named = ask(x_gateway_model_name="large")
        harness.feed(harness.exchange(), named, envoy.body(BODY))
        assert harness.asked[0].model == model


@pytest.mark.parametrize(
    ("body", "is_whole"),
    [
        (b'{"prompt":"row","lora":[{"id":0,"scale":1}]}', True),
        (b'{"prompt":"row', False),
        (b'["row"]', True),
        (b"", True),
    ],
)
def test_an_adapter_that_cannot_be_said_is_a_clear_400(body: bytes, is_whole: bool) -> None:
    harness = ExchangeHarness(4)
    harness.serve("pirate")
    messages = ask(x_lora_adapter="pirate"), envoy.body(body, end_of_stream=is_whole)
    rejected = harness.feed(harness.exchange(), *messages)[-1]
    assert envoy.rejection(rejected) == (400, "bad-request")
    assert harness.asked == []


@pytest.mark.parametrize("is_duplex", [False, True])
@pytest.mark.parametrize(("name", "is_adapter"), [("tiny:poet", True), ("qwen2.5:7b", False)])
def test_a_name_waits_until_all_have_reported_their_adapters(
    name: str, is_adapter: bool, is_duplex: bool
) -> None:
    """Then an adapter's becomes the server's number, also in what was held meanwhile; and any
    other name goes as it is."""
    harness = ExchangeHarness(4)
    harness.serve()
    late = harness.fleet.add(None)
    exchange = harness.exchange()
    body = json.dumps({"model": name, "prompt": "row"}).encode()
    harness.feed(exchange, ask_duplex() if is_duplex else ask(), envoy.body(body))
    assert exchange.stage is Stage.QUEUED
    harness.feed(harness.exchange(), ask(), envoy.body(BODY))
    assert len(harness.asked) == 2, "nobody else waits"
    harness.fleet.listener.on_settled = lambda _, settlement: exchange.settle(settlement)
    harness.serve("bard", "poet", number=1)
    replies = []
    while (reply := exchange.take_reply()) is not None:
        replies.append(reply)
    common = (replies[0].request_headers if is_duplex else replies[0].request_body).response
    sent = streamed(replies[1:]) if is_duplex else common.body_mutation.body
    if not is_adapter:
        assert sent in (b"", body)
        return
    assert envoy.set_headers(common.header_mutation) == {
        header_names.DESTINATION: str(late),
        "x-envoy-max-retries": "0",
    }
    assert sent.startswith(body[:-1])
    assert json.loads(sent)["lora"] == [{"id": 11, "scale": 1.0}]
    assert json.loads(sent)["model"] == "tiny"


@pytest.mark.parametrize(
    ("body", "is_whole", "told"),
    [
        (b'{"model":"tiny:poet","prompt":"row', False, "read completely"),
        (b'{"model":"tiny:poet","lora":[{"id":0,"scale":1}]}', True, "not both"),
    ],
)
def test_an_adapter_that_cannot_be_said_is_a_clear_400_also_when_it_is_known_late(
    body: bytes, is_whole: bool, told: str
) -> None:
    harness = ExchangeHarness(4)
    harness.serve("bard")
    harness.fleet.add(None)
    exchange = harness.exchange()
    harness.feed(exchange, ask(), envoy.body(body, end_of_stream=is_whole))
    assert exchange.stage is Stage.QUEUED
    harness.fleet.listener.on_settled = lambda _, settlement: exchange.settle(settlement)
    harness.serve("poet", number=1)
    reply = exchange.take_reply()
    assert reply is not None and envoy.rejection(reply) == (400, "bad-request")
    assert told in reply.immediate_response.body.decode()


def test_a_name_that_proves_to_be_an_adapters_after_the_body_was_freed_is_a_clear_400() -> None:
    """All had reported when it was queued, so nobody kept its body. Then a machine with a keeper
    joins that has the adapter."""
    harness = ExchangeHarness(4)
    harness.serve()
    dispatcher = harness.fleet.dispatcher
    for _ in range(4):
        harness.feed(harness.exchange(), ask(), envoy.body(b'{"model":"tiny"}'))
    exchange = harness.exchange()
    harness.feed(exchange, ask(), envoy.body(b'{"model":"tiny:poet"}'))
    assert exchange.stage is Stage.QUEUED and harness.asked[-1].adapter is None
    harness.fleet.listener.on_settled = lambda _, settlement: exchange.settle(settlement)
    kept = Address("10.0.0.9", 8000)
    harness.fleet.addresses.append(kept)
    spec = EndpointSpec(address=kept, is_reported=True, kept_models=2)
    dispatcher.set_members("agents", [spec], harness.fleet.now)
    harness.serve("poet", number=1, model="base")
    readings = {"base": ModelReading(name="base", aliases=("small",))}
    dispatcher.set_loadable("gpu-1", readings, harness.fleet.now, frozenset({kept}))
    reply = exchange.take_reply()
    assert reply is not None and envoy.rejection(reply) == (400, "bad-request")
    assert "send it again" in reply.immediate_response.body.decode()
    assert not dispatcher.faults(harness.fleet.now)


def test_a_colon_in_a_models_name_is_no_adapter() -> None:
    harness = ExchangeHarness(4)
    harness.serve("8b", model="llama3:8b")
    body = envoy.body(b'{"model":"llama3:8b","prompt":"row"}')
    (answer,) = harness.feed(harness.exchange(), ask(), body)[1:]
    assert not answer.request_body.response.HasField("body_mutation")
    assert (harness.asked[0].model, harness.asked[0].adapter) == ("llama3:8b", None)


def poets() -> RequestResolver:
    """A fleet of `tiny` with the adapter `poet`."""
    fleet = SteeredFleet(match=ModelMatch.STRICT)
    fleet.add(1, models=["tiny"], adapters=["poet"])
    return fleet.dispatcher.resolver


@pytest.mark.parametrize(
    ("in_body", "in_header", "adapter", "names"),
    [
        (None, None, None, (None, None)),
        ("tiny", "large", None, ("tiny", None)),
        (None, "large", None, ("large", None)),
        ("tiny:poet", None, None, ("tiny", "poet")),
        ("tiny:unknown", None, None, ("tiny:unknown", None)),
        ("tiny:poet", None, "bard", ("tiny", "bard")),
        ("tiny", None, "bard", ("tiny", "bard")),
    ],
)
def test_which_names_count(
    in_body: str | None,
    in_header: str | None,
    adapter: str | None,
    names: tuple[str | None, str | None],
) -> None:
    """The server reads the body; a header that names the adapter counts before the model's name."""
    head = RequestHead(method="POST", path="/completion", id="r", model=in_header, adapter=adapter)
    assert names_of(head, RequestBody(model=in_body), poets()) == names


def test_a_long_body_without_its_model_is_valid_while_one_model_is_served() -> None:
    resolver = poets()
    cut = RequestBody(unread="was cut")
    assert validate_names(None, None, cut, b"{", resolver, is_whole=False) is None


@pytest.mark.parametrize(
    ("numbers", "raw", "is_whole", "problem"),
    [
        (None, b'{"prompt":"row"}', True, None),
        (frozenset({1}), b'{"prompt":"row"}', True, BOTH),
        (None, b'{"prompt":"row"}', False, NOT_WHOLE),
        (None, b"row", True, NOT_WHOLE),
    ],
)
def test_an_adapters_name_needs_a_whole_object_without_numbers(
    numbers: frozenset[int] | None, raw: bytes, is_whole: bool, problem: str | None
) -> None:
    body = RequestBody(adapter_numbers=numbers)
    assert validate_names("tiny", "poet", body, raw, poets(), is_whole=is_whole) == problem
    assert validate_names("tiny", None, body, raw, poets(), is_whole=is_whole) is None
