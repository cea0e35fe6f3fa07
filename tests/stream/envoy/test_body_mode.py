"""Claims about extproc/stream/envoy/body_mode.py: each way in which Envoy sends a body."""

from __future__ import annotations

import pytest

from extproc import header_names
from extproc.core.address import Address
from extproc.core.rejection import Reason
from extproc.core.request import Kind
from extproc.pb import external_processor_pb2 as pb
from extproc.pb.processing_mode_pb2 import ProcessingMode
from extproc.stream.envoy.body_mode import BodyMode
from extproc.stream.exchange import Stage
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import (
    BODY,
    ExchangeHarness,
    ask,
    ask_duplex,
    streamed,
    trailers,
)


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
    assert envoy.set_headers(mutation) == {
        header_names.DESTINATION: str(harness.fleet.addresses[0])
    }
    assert not answer.request_body.response.HasField("body_mutation"), "the bytes are the client's"
    fields = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert fields[header_names.DESTINATION].string_value == str(harness.fleet.addresses[0])
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


def test_who_waits_keeps_no_body_that_stays_as_it_is() -> None:
    """A thousand may wait, with megabytes each."""
    harness = ExchangeHarness(1)
    harness.feed(harness.exchange(), ask(), envoy.body(BODY))
    waiting = harness.exchange()
    harness.feed(waiting, ask(), envoy.body(BODY + b" " * 1_000_000))
    assert waiting.stage is Stage.QUEUED
    assert waiting._reader.body_mode.body == b"", "nobody else can tell"


def test_an_envoy_that_streams_bodies_gets_its_answer_with_the_headers() -> None:
    """It would send the headers on before any chunk was read."""
    harness = ExchangeHarness(4)
    message = ask()
    message.protocol_config.request_body_mode = ProcessingMode.STREAMED
    assert envoy.destination(harness.feed(harness.exchange(), message)[0])


def test_in_full_duplex_the_headers_answer_is_deferred() -> None:
    """Then comes all that was held, then the rest as it comes."""
    harness = ExchangeHarness(4, kept_bytes=200)
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


def begun(mode: ProcessingMode.BodySendMode | None, *, has_body: bool = True) -> BodyMode:
    """The mode of a stream whose first message declares this; None declares nothing."""
    message = envoy.request_headers()
    if has_body:
        message = envoy.with_body(message)
    if mode is None:
        message.ClearField("protocol_config")
    else:
        message.protocol_config.request_body_mode = mode
    body_mode = BodyMode()
    body_mode.begin(message)
    return body_mode


A, B = Address("10.0.0.1", 8000), Address("10.0.0.1", 8001)


def test_a_request_without_a_body_is_complete_with_its_headers() -> None:
    body_mode = begun(ProcessingMode.FULL_DUPLEX_STREAMED, has_body=False)
    assert body_mode.has_all and not body_mode.can_bring_body


@pytest.mark.parametrize(
    ("mode", "can_be_read"),
    [
        (None, True),
        (ProcessingMode.NONE, True),
        (ProcessingMode.FULL_DUPLEX_STREAMED, True),
        (ProcessingMode.STREAMED, False),
        (ProcessingMode.BUFFERED, True),
    ],
)
def test_in_which_modes_a_body_can_be_read_before_the_decision(
    mode: ProcessingMode.BodySendMode | None, can_be_read: bool
) -> None:
    assert begun(mode).can_bring_body is can_be_read


def test_a_gateway_that_declares_nothing_gets_one_address() -> None:
    """Only Envoys are known to use a list of fallbacks."""
    assert begun(None).nameable((A, B)) == (A,)
    assert begun(ProcessingMode.NONE).nameable((A, B)) == (A, B)
    assert begun(None).nameable(()) == ()


def test_in_full_duplex_nothing_is_requested_because_all_of_it_comes() -> None:
    assert begun(ProcessingMode.FULL_DUPLEX_STREAMED).bring_body(is_short=True) == []
    assert len(begun(ProcessingMode.NONE).bring_body(is_short=True)) == 1


def test_in_full_duplex_the_decision_waits_for_enough_of_the_body_or_its_end() -> None:
    body_mode = begun(ProcessingMode.FULL_DUPLEX_STREAMED)
    assert not body_mode.take(envoy.body(b"12", end_of_stream=False).request_body, enough_bytes=4)
    assert body_mode.body == b"" and not body_mode.has_all
    assert body_mode.take(envoy.body(b"34", end_of_stream=False).request_body, enough_bytes=4)
    assert body_mode.body == b"1234" and not body_mode.has_all
    short = begun(ProcessingMode.FULL_DUPLEX_STREAMED)
    assert short.take(envoy.body(b"1").request_body, enough_bytes=4)
    assert short.body == b"1" and short.has_all


def test_a_requested_body_is_enough_however_much_of_it_came() -> None:
    """Envoy sends what fits into its buffer, once."""
    body_mode = begun(ProcessingMode.NONE)
    assert body_mode.take(envoy.body(b"1", end_of_stream=False).request_body, enough_bytes=4)
    assert (body_mode.body, body_mode.has_all) == (b"1", False)


def test_a_body_whose_rest_does_not_come_is_decided_on_as_it_is() -> None:
    body_mode = begun(ProcessingMode.FULL_DUPLEX_STREAMED)
    body_mode.take(envoy.body(b"12", end_of_stream=False).request_body, enough_bytes=4)
    body_mode.end_body()
    assert body_mode.body == b"12" and body_mode.has_all


@pytest.mark.parametrize("mode", [ProcessingMode.NONE, ProcessingMode.FULL_DUPLEX_STREAMED])
def test_the_decision_takes_the_held_body_along_and_frees_it(
    mode: ProcessingMode.BodySendMode,
) -> None:
    """Replaced as a whole where it was changed."""
    body_mode = begun(mode)
    body_mode.take(envoy.body(b"old").request_body, enough_bytes=1)
    replies = body_mode.answer((A,), "id", (), b"new")
    if mode == ProcessingMode.NONE:
        (reply,) = replies
        assert reply.request_body.response.body_mutation.body == b"new"
    else:
        assert streamed(replies[1:]) == b"new"
    assert body_mode.body == b""
