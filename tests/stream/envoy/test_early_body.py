"""Claims about extproc/stream/envoy/early_body.py: each part is answered once, none too soon."""

from __future__ import annotations

from typing import Any

import pytest

from extproc.core.rejection import Reason
from extproc.pb import external_processor_pb2 as pb
from extproc.pb.processing_mode_pb2 import ProcessingMode
from extproc.stream.envoy.early_body import EarlyBody
from extproc.stream.exchange import Stage
from tests.fakes import envoy_messages as envoy
from tests.fakes.exchange_harness import BODY, ExchangeHarness, ask, trailers


def ask_early(**headers: str) -> pb.ProcessingRequest:
    message = ask(**headers)
    message.protocol_config.request_body_mode = ProcessingMode.STREAMED
    message.protocol_config.send_body_without_waiting_for_header_response = True
    return message


def kinds(replies: list[Any]) -> list[str | None]:
    return [reply.WhichOneof("response") for reply in replies]


def test_all_parts_are_answered_with_the_headers() -> None:
    """Nothing is said before the decision: the stream can be opened again until then."""
    harness = ExchangeHarness(4)
    exchange = harness.exchange()
    parts = [envoy.body(BODY[:50], end_of_stream=False), envoy.body(b"", end_of_stream=False)]
    assert harness.feed(exchange, ask_early(), *parts) == []
    assert exchange.stage is Stage.READING
    replies = harness.feed(exchange, envoy.body(BODY[50:]))
    assert kinds(replies) == ["request_headers", "request_body", "request_body", "request_body"]
    assert envoy.destination(replies[0])
    assert not any(reply.request_body.response.HasField("body_mutation") for reply in replies[1:])
    assert harness.asked[0].model == "tiny"


def test_a_body_that_is_longer_than_what_envoy_keeps_is_not_waited_for() -> None:
    """Each later part is answered by itself."""
    harness = ExchangeHarness(4, kept_bytes=200)
    exchange = harness.exchange()
    first = envoy.body(BODY[:200], end_of_stream=False)
    assert kinds(harness.feed(exchange, ask_early(), first)) == ["request_headers", "request_body"]
    for _ in range(2):
        assert kinds(harness.feed(exchange, envoy.body(BODY[200:]))) == ["request_body"]


def test_no_more_is_waited_for_than_envoy_keeps() -> None:
    """It sends no more before the first part is answered."""
    harness = ExchangeHarness(4, limit_bytes=100_000, kept_bytes=200)
    first = envoy.body(BODY[:200], end_of_stream=False)
    assert harness.feed(harness.exchange(), ask_early(), first)


def test_a_queued_request_has_no_answer_and_keeps_no_copy() -> None:
    harness = ExchangeHarness(1)
    harness.feed(harness.exchange(), ask_early(), envoy.body(BODY))
    waiting = harness.exchange()
    assert harness.feed(waiting, ask_early(), envoy.body(BODY)) == []
    assert waiting.stage is Stage.QUEUED
    upload = waiting._reader.body_mode._upload
    assert isinstance(upload, EarlyBody)
    assert (upload.held(), waiting._reader.body_mode.body) == (b"", b"")


@pytest.mark.parametrize("bodies", [(), (BODY,)])
def test_trailers_are_rejected(bodies: tuple[bytes, ...]) -> None:
    harness = ExchangeHarness(4)
    exchange = harness.exchange()
    parts = [envoy.body(body, end_of_stream=False) for body in bodies]
    *_, rejection = harness.feed(exchange, ask_early(), *parts, trailers())
    assert rejection.immediate_response.status.code == 400
    assert exchange.end(harness.fleet.now).reason is Reason.BAD_REQUEST


def test_a_request_without_a_slot_is_answered_part_by_part() -> None:
    harness = ExchangeHarness(4)
    message = ask_early()
    message.request_headers.headers.CopyFrom(
        envoy.request_headers("/tokenize").request_headers.headers
    )
    exchange = harness.exchange()
    replies = harness.feed(exchange, message, envoy.body(b"row", end_of_stream=False))
    assert kinds(replies) == ["request_headers", "request_body"]
    assert envoy.destination(replies[0])


def test_a_new_body_takes_the_place_of_all_parts() -> None:
    body = EarlyBody()
    for part in (b"one", b"two", b""):
        assert body.take(part, is_last=part == b"") == []
    assert body.held() == b"onetwo" and body.has_end
    body.replace(b"three")
    first, *others = body.open()
    assert first.request_body.response.body_mutation.body == b"three"
    assert len(others) == 2
    assert all(one.request_body.response.body_mutation.clear_body for one in others)


def test_another_process_goes_on_with_what_follows() -> None:
    """Its parts were answered by the process before."""
    body = EarlyBody()
    assert body.open() == []
    assert kinds(body.take(b"four", is_last=True)) == ["request_body"]
