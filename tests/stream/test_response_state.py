"""Claims about extproc/stream/response_state.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from extproc.core.rejection import Reason
from extproc.core.slots.lease import LeaseEnd
from extproc.pb import external_processor_pb2 as pb
from extproc.pb.processing_mode_pb2 import ProcessingMode
from extproc.stream.envoy import codec
from extproc.stream.response_state import ResponseState
from extproc.usage.answer_tail import NO_USAGE
from tests.fakes import envoy_messages as envoy

LLAMACPP = Path(__file__).parents[1] / "data" / "llamacpp"


def state(*, is_stream: bool = False, details: str = "via_upstream") -> ResponseState:
    """One whose headers have arrived."""
    response = ResponseState()
    response.head = codec.ResponseHead(
        status=200,
        is_stream=is_stream,
        served=None,
        attempts=1,
        code_details=details,
        body_bytes=-1 if is_stream else 20_000,
    )
    response.is_complete = not is_stream and details == "via_upstream"
    return response


def end_of(response: ResponseState) -> LeaseEnd:
    return response.lease_end(is_unsent=False)


def test_a_server_that_has_answered_has_freed_its_slot() -> None:
    """Also if the client left before it had the whole of an ordinary answer."""
    response = state()
    assert not response.was_cut() and end_of(response) is LeaseEnd.SERVED
    response.is_broken = True
    assert not response.was_cut() and end_of(response) is LeaseEnd.SERVED


def test_a_stream_of_events_that_was_cut_may_still_run() -> None:
    response = state(is_stream=True)
    assert not response.was_cut() and end_of(response) is LeaseEnd.ABANDONED
    response.is_broken = True
    assert response.was_cut() and end_of(response) is LeaseEnd.ABANDONED


OVERFLOWS = ("chat", "completion", "messages", "responses")


@pytest.mark.parametrize("step", [1, 7, 10_000])
@pytest.mark.parametrize("api", OVERFLOWS)
def test_a_stream_that_ends_because_the_context_is_full(api: str, step: int) -> None:
    """However it is cut into parts; without the last event it ended in another way."""
    stream = (LLAMACPP / f"overflow_stream_{api}.txt").read_bytes()
    assert streamed(stream, step).is_overflow()
    assert not streamed(stream[: stream.rindex(b"data: ")], step).is_overflow()
    assert not streamed(stream + b'data: {"x":1}\n\n', step).is_overflow()


def test_a_speculative_stream_ends_with_another_text() -> None:
    error = (LLAMACPP / "overflow_speculative_500.json").read_bytes().strip()
    assert streamed(b'data: {"x":1}\n\ndata: ' + error + b"\n\n", 7).is_overflow()
    other = error.replace(b"sub-batch", b"batch")
    assert not streamed(b"data: " + other + b"\n\n", 7).is_overflow()


@pytest.mark.parametrize("api", OVERFLOWS)
def test_a_text_that_quotes_the_error_is_none(api: str) -> None:
    stream = (LLAMACPP / f"overflow_stream_{api}.txt").read_text()
    event = stream[stream.rindex("data: ") :]
    for text in (event, f"\n{event}"):
        quoted = f"data: {json.dumps({'content': text})}\n\n"
        assert not streamed(quoted.encode(), 10_000).is_overflow()
    answer = streamed(event.encode(), 10_000, content_type="application/json")
    assert not answer.is_overflow()


def streamed(body: bytes, step: int, content_type: str = "text/event-stream") -> ResponseState:
    response = ResponseState()
    response.expect_body(pb.ProcessingRequest())
    response.take_head(envoy.response_headers(content_type=content_type), 1.0)
    for place in range(0, len(body), step):
        response.take_body(pb.HttpBody(body=body[place : place + step]))
    response.take_body(pb.HttpBody(end_of_stream=True))
    return response


def test_the_last_part_of_a_body_proves_its_end() -> None:
    """No part before it does."""
    response = ResponseState()
    response.expect_body(pb.ProcessingRequest())
    response.take_head(envoy.response_headers(content_type="text/event-stream"), 1.0)
    response.take_body(pb.HttpBody(body=b"data: {}"))
    assert end_of(response) is LeaseEnd.ABANDONED
    response.take_body(pb.HttpBody(body=b"data: [DONE]", end_of_stream=True))
    assert end_of(response) is LeaseEnd.SERVED


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (envoy.response_headers(), LeaseEnd.SERVED),
        (envoy.response_headers(body_bytes=None), LeaseEnd.ABANDONED),
        (envoy.without_body(envoy.response_headers(body_bytes=None)), LeaseEnd.SERVED),
    ],
    ids=["a length", "no length", "no body"],
)
def test_headers_prove_the_end_if_they_say_how_long_it_is(
    response: pb.ProcessingRequest, expected: LeaseEnd
) -> None:
    """A server that counts what it sends has all of it."""
    state = ResponseState()
    state.take_head(response, 1.0)
    assert end_of(state) is expected


def test_what_was_never_answered_may_still_run() -> None:
    """Unless it never left the picker. A stream that was closed first was handed over."""
    response = ResponseState()
    assert response.was_cut() and end_of(response) is LeaseEnd.ABANDONED
    assert response.lease_end(is_unsent=True) is LeaseEnd.SERVED
    response.is_half_closed = True
    assert response.is_handed_over() and end_of(response) is LeaseEnd.HANDED_OVER
    response.is_cancelled = True
    assert not response.is_handed_over() and end_of(response) is LeaseEnd.ABANDONED


def test_a_lost_stream_says_nothing_of_its_response() -> None:
    """The client may have got all of it, and the server may still send it."""
    response = state()
    response.is_half_closed = response.is_lost = True
    assert not response.was_cut() and end_of(response) is LeaseEnd.ABANDONED


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ("upstream_reset_before_response_started{connection_failure}", LeaseEnd.SERVED),
        ("upstream_reset_before_response_started{remote_reset}", LeaseEnd.ABANDONED),
    ],
)
def test_what_could_not_be_connected_does_not_run(details: str, expected: LeaseEnd) -> None:
    response = state(details=details)
    assert response.was_cut() and end_of(response) is expected


def test_the_status_is_the_responses_or_that_of_the_rejection() -> None:
    assert state().status(Reason.CANCELLED) == 200
    assert ResponseState().status(Reason.QUEUE_TIMEOUT) == 504
    assert ResponseState().status(None) == 0


@pytest.mark.parametrize("is_said", [True, False])
def test_a_body_passes_whole_and_its_tokens_are_counted(is_said: bool) -> None:
    """If the configuration says so, or a gateway says nothing."""
    first = pb.ProcessingRequest()
    if is_said:
        first.protocol_config.response_body_mode = ProcessingMode.FULL_DUPLEX_STREAMED
    response = ResponseState()
    response.expect_body(first)
    sent = [
        *response.take_body(pb.HttpBody(body=b'{"usage": {"prompt_tokens": 7, ')),
        *response.take_body(pb.HttpBody(body=b'"completion_tokens": 9}}', end_of_stream=True)),
    ]
    parts = [reply.response_body.response.body_mutation.streamed_response for reply in sent]
    assert b"".join(part.body for part in parts) == (
        b'{"usage": {"prompt_tokens": 7, "completion_tokens": 9}}'
    )
    assert [part.end_of_stream for part in parts] == [False, True]
    assert response.has_body and response.usage()[:2] == (7, 9)


def test_a_body_that_does_not_pass_is_not_counted() -> None:
    first = pb.ProcessingRequest()
    first.protocol_config.SetInParent()
    response = ResponseState()
    response.expect_body(first)
    assert not response.has_body and response.usage() == NO_USAGE
