"""Claims about how an exchange reads a body before it decides, in each way of asking."""

from __future__ import annotations

import json
from typing import Any

import pytest

from extproc.core.exchange_record import Outcome
from extproc.core.fleet.aliases import ModelMatch
from extproc.core.observation import AdapterReading, ModelReading, Observation, ScrapeStatus
from extproc.core.rejection import Reason
from extproc.core.request import Kind, Request
from extproc.core.scheduler.explain import DryRunRequest
from extproc.pb import external_processor_pb2 as pb
from extproc.pb.processing_mode_pb2 import ProcessingMode
from extproc.stream.dry_run import dry_run
from extproc.stream.envoy import codec
from extproc.stream.exchange import Exchange, ExchangeOptions, Stage
from extproc.stream.request.translate import ReadingOptions
from tests.fakes import envoy_messages as envoy
from tests.fakes.small_fleet import SmallFleet

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "row " * 100}], "n": 2}
BODY = json.dumps(CHAT).encode()


ASKED = (Stage.LEASED, Stage.QUEUED)


class ExchangeHarness:
    """A small fleet that remembers what it was asked."""

    def __init__(
        self,
        *slots: int,
        splits: dict[str, dict[str, float]] | None = None,
        match: ModelMatch = ModelMatch.LENIENT,
        **reading: Any,
    ) -> None:
        self.fleet = SmallFleet(*slots, splits=splits, match=match)
        self.options = ExchangeOptions(reading=ReadingOptions(**reading), started_at=7)
        self.asked: list[Request] = []

    def exchange(self) -> Exchange:
        return Exchange(self.fleet.dispatcher, self.options, self.fleet.now)

    def feed(self, exchange: Exchange, *messages: pb.ProcessingRequest) -> list[Any]:
        """Feed them in order; returns all that was answered."""
        replies = []
        for message in messages:
            is_asked = exchange.stage in ASKED
            exchange.feed(message, self.fleet.now)
            if exchange.stage in ASKED and not is_asked:
                request = exchange._reader.request
                assert request is not None
                self.asked.append(request)
            while (reply := exchange.take_reply()) is not None:
                replies.append(reply)
        return replies

    def route(self, number: int = 0) -> None:
        """The endpoint is a router that has loaded `tiny`."""
        self.fleet.now += 1
        self.fleet.dispatcher.observe(
            Observation(
                address=self.fleet.addresses[number],
                began_at=self.fleet.now,
                answered_at=self.fleet.now,
                status=ScrapeStatus.READY,
                slots=8,
                busy_slots=0,
                models=(
                    ModelReading(name="tiny", slots=8, busy_slots=0),
                    ModelReading(name="large", is_loaded=False),
                ),
            ),
            self.fleet.now,
        )

    def serve(self, *adapters: str, model: str = "tiny", number: int = 0) -> None:
        """The endpoint reports a model and adapters."""
        self.fleet.now += 1
        self.fleet.dispatcher.observe(
            Observation(
                address=self.fleet.addresses[number],
                began_at=self.fleet.now,
                answered_at=self.fleet.now,
                status=ScrapeStatus.READY,
                slots=4,
                busy_slots=0,
                models=(ModelReading(name=model, aliases=("small",)),),
                adapters=tuple(
                    AdapterReading(id=10 * number + place, name=name)
                    for place, name in enumerate(adapters)
                ),
            ),
            self.fleet.now,
        )


def ask(**headers: str) -> pb.ProcessingRequest:
    return envoy.with_body(envoy.request_headers(**headers))


def ask_duplex(**headers: str) -> pb.ProcessingRequest:
    return envoy.with_body(envoy.request_headers(**headers), is_duplex=True)


def trailers() -> pb.ProcessingRequest:
    return envoy.part("request_trailers")


def streamed(replies: list[Any]) -> bytes:
    """The bytes that went on in full duplex."""
    return b"".join(r.request_body.response.body_mutation.streamed_response.body for r in replies)


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


@pytest.mark.parametrize("told", [{}, {"content_length": "65537"}])
def test_a_body_is_asked_for_and_the_destination_answers_it(told: dict[str, str]) -> None:
    """The headers wait in Envoy; nothing of the mode that is on gets lost."""
    harness = ExchangeHarness(4)
    exchange = harness.exchange()
    (asked,) = harness.feed(exchange, ask(**told))
    assert exchange.stage is Stage.READING and harness.asked == []
    assert asked.mode_override == ProcessingMode(
        response_header_mode=ProcessingMode.SEND,
        request_body_mode=ProcessingMode.BUFFERED_PARTIAL,
        request_trailer_mode=ProcessingMode.SEND,
        response_trailer_mode=ProcessingMode.SEND,
    )
    (answer,) = harness.feed(exchange, envoy.body(BODY))
    mutation = answer.request_body.response.header_mutation
    assert envoy.set_headers(mutation) == {codec.DESTINATION: str(harness.fleet.addresses[0])}
    assert not answer.request_body.response.HasField("body_mutation"), "the bytes are the client's"
    fields = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert fields[codec.DESTINATION].string_value == str(harness.fleet.addresses[0])
    request = harness.asked[0]
    assert (request.model, request.weight_slots, request.kind) == ("tiny", 2, Kind.GENERATION)
    assert (
        len(request.prompt_blocks) == 1
        and request.prompt_tokens == len("user\0" + "row " * 100) // 4
    )


def test_a_body_whose_length_is_short_is_asked_for_whole() -> None:
    """Then Envoy keeps its trailers to itself, and sends both once."""
    harness = ExchangeHarness(4)
    exchange = harness.exchange()
    (asked,) = harness.feed(exchange, ask(content_length="65536"))
    assert asked.mode_override == ProcessingMode(
        response_header_mode=ProcessingMode.SEND,
        request_body_mode=ProcessingMode.BUFFERED,
        response_trailer_mode=ProcessingMode.SEND,
    )
    (destination,) = harness.feed(exchange, envoy.body(BODY, end_of_stream=False))
    assert envoy.set_headers(destination.request_body.response.header_mutation)


@pytest.mark.parametrize("is_duplex", [False, True])
@pytest.mark.parametrize("bodies", [(), (BODY,), (b"x" * 70_000,)])
def test_trailers_are_rejected(bodies: tuple[bytes, ...], is_duplex: bool) -> None:
    """Envoy would send once more what it keeps; so the server gets nothing of it."""
    harness = ExchangeHarness(4)
    exchange = harness.exchange()
    parts = [envoy.body(body, end_of_stream=False) for body in bodies]
    *_, rejection = harness.feed(exchange, ask_duplex() if is_duplex else ask(), *parts, trailers())
    assert rejection.immediate_response.status.code == 400
    assert b"without trailers" in rejection.immediate_response.body
    assert harness.feed(exchange, trailers()) == [], "told once"
    assert exchange.end(harness.fleet.now).reason is Reason.BAD_REQUEST


@pytest.mark.parametrize(
    "message",
    [
        envoy.request_headers(),
        envoy.with_body(envoy.request_headers("/tokenize")),
    ],
)
def test_no_body_is_requested_without_need(message: pb.ProcessingRequest) -> None:
    """There is none, or it takes no slot: decided by the headers at once."""
    harness = ExchangeHarness(4)
    assert len(envoy.destination(harness.feed(harness.exchange(), message)[0])) == 1


@pytest.mark.parametrize(
    "header", [{"content_type": "multipart/form-data; boundary=x"}, {"content_encoding": "gzip"}]
)
def test_a_body_that_reports_nothing_is_waited_for_too(header: dict[str, str]) -> None:
    """Who only announces a body occupies no slot; when it came it is not read, nor judged."""
    harness = ExchangeHarness(4, is_strict=True)
    exchange = harness.exchange()
    harness.feed(exchange, envoy.with_body(envoy.request_headers(**header)))
    assert exchange.stage is Stage.READING and harness.asked == []
    (answer,) = harness.feed(exchange, envoy.body(b"--x\r\n{"))
    assert codec.DESTINATION in envoy.set_headers(answer.request_body.response.header_mutation)
    assert (harness.asked[0].model, harness.asked[0].weight_slots) == (None, 1)


def test_who_waits_keeps_no_body_that_stays_as_it_is() -> None:
    """A thousand may wait, with megabytes each."""
    harness = ExchangeHarness(1)
    harness.feed(harness.exchange(), ask(), envoy.body(BODY))
    waiting = harness.exchange()
    harness.feed(waiting, ask(), envoy.body(BODY + b" " * 1_000_000))
    assert waiting.stage is Stage.QUEUED
    assert waiting._reader.body_mode.body == b"", "nobody else can tell"


def test_reading_can_be_switched_off() -> None:
    """Then a request weighs one slot, and its length is guessed."""
    harness = ExchangeHarness(4, reads_bodies=False)
    replies = harness.feed(harness.exchange(), ask(content_length="4000"))
    assert envoy.destination(replies[0])
    assert (harness.asked[0].weight_slots, harness.asked[0].prompt_tokens) == (1, 1000)


def test_an_envoy_that_streams_bodies_gets_its_answer_with_the_headers() -> None:
    """It would send the headers on before any chunk was read."""
    harness = ExchangeHarness(4)
    message = ask()
    message.protocol_config.request_body_mode = ProcessingMode.STREAMED
    assert envoy.destination(harness.feed(harness.exchange(), message)[0])


def test_only_the_beginning_of_a_long_body_is_read() -> None:
    """The rest passes Envoy by; its length counts all the same."""
    harness = ExchangeHarness(4, limit_bytes=600)
    length = {"content-length": "1000000"}
    message = envoy.with_body(envoy.request_headers(**length))
    body = json.dumps({"model": "tiny", "prompt": "row " * 10_000}).encode()
    harness.feed(harness.exchange(), message, envoy.body(body, end_of_stream=False))
    request = harness.asked[0]
    assert (request.model, request.prompt_tokens) == ("tiny", 250_000)
    assert len(request.prompt_blocks) == 2


def test_the_model_behind_a_long_prompt_is_read() -> None:
    """Clients write it there; the bytes between the beginning and the end are not looked at."""
    harness = ExchangeHarness(4, limit_bytes=600)
    body = json.dumps({"prompt": "row " * 10_000, "model": "tiny", "n": 3}).encode()
    harness.feed(harness.exchange(), ask(), envoy.body(body))
    request = harness.asked[0]
    assert (request.model, request.weight_slots, len(request.prompt_blocks)) == ("tiny", 3, 2)


LONG_CHAT = json.dumps({"prompt": "row " * 10_000, "model": "tiny"}).encode()


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("is_duplex", [False, True])
def test_a_model_that_cannot_be_read_is_guessed_at_only_if_lenient(
    is_duplex: bool, is_strict: bool
) -> None:
    """The body is longer than what Envoy keeps. A gateway's word counts, or one model alone."""
    match = ModelMatch.STRICT if is_strict else ModelMatch.LENIENT
    harness = ExchangeHarness(4, 4, limit_bytes=600, match=match)
    part = envoy.body(LONG_CHAT[:30_000], end_of_stream=False)
    begin = ask_duplex if is_duplex else ask
    harness.serve()
    assert codec.DESTINATION in str(harness.feed(harness.exchange(), begin(), part))
    harness.serve(number=1, model="large")
    named = begin(x_gateway_model_name="tiny")
    assert str(harness.fleet.addresses[0]) in str(harness.feed(harness.exchange(), named, part))
    assert harness.asked[-1].model == "tiny"
    replies = harness.feed(harness.exchange(), begin(), part)
    if is_strict:
        assert envoy.rejection(replies[-1]) == (400, "bad-request")
        assert "x-gateway-model-name" in replies[-1].immediate_response.body.decode()
    else:
        assert codec.DESTINATION in str(replies)
    assert len(harness.asked) == (2 if is_strict else 3)


def test_the_body_counts_before_a_gateways_word() -> None:
    """It is what the server reads. Without reading bodies the gateway's word is all there is."""
    for reads_bodies, model in ((True, "tiny"), (False, "large")):
        harness = ExchangeHarness(4, reads_bodies=reads_bodies)
        named = ask(x_gateway_model_name="large")
        harness.feed(harness.exchange(), named, envoy.body(BODY))
        assert harness.asked[0].model == model


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


def test_a_tenant_is_whom_envoy_found_by_the_key() -> None:
    """It takes the key away before it asks. What the client itself says only divides its part."""
    harness = ExchangeHarness(4)
    for headers in (
        {"x_coxswain_client": "web"},
        {"x_coxswain_client": "web", "authorization": "Bearer a"},
        {"x_coxswain_client": "batch"},
        {"x_coxswain_client": "web", "x_gateway_inference_fairness_id": "team-a"},
        {"x_gateway_inference_fairness_id": "team-a"},
    ):
        harness.feed(harness.exchange(), envoy.request_headers(**headers))
    assert [(request.tenant, request.fairness_id) for request in harness.asked] == [
        ("client-web", ""),
        ("client-web", ""),
        ("client-batch", ""),
        ("client-web", "team-a"),
        ("", "team-a"),
    ]


# Full duplex


def test_in_full_duplex_the_headers_answer_is_deferred() -> None:
    """Then comes all that was held, then the rest as it comes."""
    harness = ExchangeHarness(4, limit_bytes=200)
    exchange = harness.exchange()
    first, rest = BODY[:150], BODY[150:]
    assert harness.feed(exchange, ask_duplex(), envoy.body(first, end_of_stream=False)) == []
    replies = harness.feed(exchange, envoy.body(rest[:100], end_of_stream=False))
    assert envoy.destination(replies[0]) and harness.asked[0].model == "tiny"
    replies += harness.feed(exchange, envoy.body(rest[100:]), envoy.body(b""))
    assert streamed(replies[1:]) == BODY
    ends = [r.request_body.response.body_mutation.streamed_response.end_of_stream for r in replies]
    assert ends == [False] * (len(replies) - 1) + [True]


def test_in_full_duplex_an_unread_body_flows() -> None:
    """What takes no slot is sent on with its headers, chunk by chunk, and may have no trailers."""
    harness = ExchangeHarness(4)
    message = envoy.with_body(envoy.request_headers("/tokenize"), is_duplex=True)
    exchange = harness.exchange()
    replies = harness.feed(exchange, message, envoy.body(b"row", end_of_stream=False), trailers())
    assert envoy.destination(replies[0])
    assert [reply.WhichOneof("response") for reply in replies[1:]] == [
        "request_body",
        "immediate_response",
    ]


def test_in_full_duplex_trailers_behind_an_answer_pass() -> None:
    """A server that answered before it had the whole request is not cut off for them."""
    harness = ExchangeHarness(4)
    exchange = harness.exchange()
    harness.feed(exchange, ask_duplex(), envoy.body(b"x" * 70_000, end_of_stream=False))
    harness.feed(exchange, envoy.response_headers(served=str(harness.fleet.addresses[0])))
    (passed,) = harness.feed(exchange, trailers())
    assert passed.WhichOneof("response") == "request_trailers"


def test_in_full_duplex_the_answer_flows_back() -> None:
    """In pieces of at most 62,000 bytes, its end told once."""
    harness = ExchangeHarness(4)
    exchange = harness.exchange()
    harness.feed(exchange, ask_duplex(), envoy.body(BODY), envoy.response_headers())
    message = pb.ProcessingRequest()
    message.response_body.body = b"x" * 100_000
    message.response_body.end_of_stream = True
    replies = harness.feed(exchange, message, message)
    told = [r.response_body.response.body_mutation.streamed_response for r in replies]
    assert [(len(one.body), one.end_of_stream) for one in told] == [(62_000, False), (38_000, True)]


def test_in_full_duplex_a_rejected_request_says_nothing_more() -> None:
    harness = ExchangeHarness()
    exchange = harness.exchange()
    patience = {"x_coxswain_queue_timeout_ms": "0"}
    replies = harness.feed(exchange, ask_duplex(**patience), envoy.body(b"{}"), envoy.body(b""))
    assert [reply.WhichOneof("response") for reply in replies] == ["immediate_response"]


# Subsets


def hinted(message: pb.ProcessingRequest, *addresses: str) -> pb.ProcessingRequest:
    fields = message.metadata_context.filter_metadata["envoy.lb.subset_hint"].fields
    fields["x-gateway-destination-endpoint-subset"].list_value.extend(addresses)
    return message


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


def test_an_adapters_name_becomes_the_servers_number() -> None:
    """Said behind the client's own bytes; there is no fallback that numbers it otherwise."""
    harness = ExchangeHarness(4, 4)
    harness.serve("pirate")
    harness.serve("poet", "pirate", number=1)
    body = json.dumps({"model": "tiny:poet", "prompt": "row"}).encode()
    (answer,) = harness.feed(harness.exchange(), ask(), envoy.body(body))[1:]
    common = answer.request_body.response
    headers = envoy.set_headers(common.header_mutation)
    assert headers == {codec.DESTINATION: str(harness.fleet.addresses[1])}
    sent = common.body_mutation.body
    assert sent.startswith(body[:-1])
    assert json.loads(sent)["lora"] == [{"id": 10, "scale": 1.0}]
    assert json.loads(sent)["model"] == "tiny"
    assert "content-length" in common.header_mutation.remove_headers


def test_an_adapter_has_no_fallback_that_may_number_it_otherwise() -> None:
    """Though another server has it, too."""
    harness = ExchangeHarness(4, 4)
    harness.serve("poet")
    harness.serve("poet", number=1)
    body = json.dumps({"model": "tiny:poet", "prompt": "row"}).encode()
    (answer,) = harness.feed(harness.exchange(), ask(), envoy.body(body))[1:]
    destination = envoy.set_headers(answer.request_body.response.header_mutation)
    assert "," not in destination[codec.DESTINATION]


def test_in_full_duplex_too() -> None:
    harness = ExchangeHarness(4)
    harness.serve("pirate")
    replies = harness.feed(
        harness.exchange(), ask_duplex(x_lora_adapter="pirate"), envoy.body(b' {"prompt":"row"} ')
    )
    assert json.loads(streamed(replies[1:])) == {"prompt": "row", "lora": [{"id": 0, "scale": 1.0}]}


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
    assert envoy.set_headers(common.header_mutation) == {codec.DESTINATION: str(late)}
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
    body = json.dumps({"model": "chat", "prompt": "row " * (40 if is_duplex else 4000)}).encode()
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
    harness = split_desk(limit_bytes=200)
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
        assert headers == {codec.DESTINATION: str(harness.fleet.addresses[1])}
    routers = ExchangeHarness(4, splits={"chat": {"tiny": 1.0}}, limit_bytes=200)
    routers.route()
    rejected = routers.feed(routers.exchange(), *messages)[-1]
    assert envoy.rejection(rejected) == (400, "bad-request")
    assert routers.asked == []


@pytest.mark.parametrize(
    ("headers", "body", "reason"),
    [
        ({"content-type": "multipart/form-data"}, b"--x\r\n", Reason.BAD_REQUEST),
        ({}, b"{}", None),
        ({"content-type": "application/octet-stream"}, b"{}", None),
        ({}, b"", Reason.BAD_REQUEST),
    ],
)
def test_who_asks_what_would_be_hears_what_is(
    headers: dict[str, str], body: bytes, reason: Reason | None
) -> None:
    """A name of ours cannot be told to a router in what is not a JSON object: neither way."""
    harness = ExchangeHarness(4, splits={"chat": {"tiny": 1.0}})
    harness.route()
    named = {**headers, "x-gateway-model-name": "chat"}
    exchange = harness.exchange()
    harness.feed(exchange, envoy.with_body(envoy.request_headers(**named)), envoy.body(body))
    assert exchange.end(harness.fleet.now).reason is reason
    asked = DryRunRequest(method="POST", path=envoy.COMPLETION, headers=named, body=body)
    assert (
        dry_run(harness.fleet.dispatcher, harness.options, asked, harness.fleet.now).reason
        is reason
    )


def test_a_colon_in_a_models_name_is_no_adapter() -> None:
    harness = ExchangeHarness(4)
    harness.serve("8b", model="llama3:8b")
    body = envoy.body(b'{"model":"llama3:8b","prompt":"row"}')
    (answer,) = harness.feed(harness.exchange(), ask(), body)[1:]
    assert not answer.request_body.response.HasField("body_mutation")
    assert (harness.asked[0].model, harness.asked[0].adapter) == ("llama3:8b", None)


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
    record = exchange.end(harness.fleet.now)._replace(duration_s=0.0)
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
