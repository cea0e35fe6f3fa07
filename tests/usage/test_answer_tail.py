"""Claims about extproc/usage/answer_tail.py."""

from __future__ import annotations

import json

import pytest

from extproc.core.exchange_record import Outcome
from extproc.stream.exchange import Exchange, ExchangeOptions
from extproc.usage.answer_tail import HEAD_BYTES, NO_USAGE, TAIL_BYTES, AnswerTail, TokenUsage
from tests.fakes import envoy_messages as envoy
from tests.fakes.small_fleet import SmallFleet

USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 34,
    "prompt_tokens_details": {"cached_tokens": 7},
}
TIMINGS = {"cache_n": 10, "prompt_n": 2, "predicted_n": 34, "predicted_ms": 1.5625}


@pytest.mark.parametrize(
    ("body", "usage"),
    [
        (
            {"choices": [], "usage": USAGE, "timings": TIMINGS},
            TokenUsage(12, 34, 7, None, 0.0015625),
        ),
        ({"choices": [], "timings": TIMINGS}, TokenUsage(12, 34, 10, None, 0.0015625)),
        (  # llama-server writes times with all their digits
            {"timings": {"prompt_ms": 61.482999999999997, "predicted_ms": 1250}},
            TokenUsage(prompt_s=0.061482999999999997, generated_s=1.25),
        ),
        ({"usage": {"input_tokens": 12, "output_tokens": 34}}, TokenUsage(12, 34)),
        ({"usage": {"output_tokens": 34}}, TokenUsage(None, 34)),
        (  # Anthropic's API counts the cached ones apart
            {"usage": {"cache_read_input_tokens": 28, "input_tokens": 1, "output_tokens": 5}},
            TokenUsage(29, 5, 28),
        ),
        (
            {"usage": {"input_tokens": 29, "input_tokens_details": {"cached_tokens": 28}}},
            TokenUsage(29, None, 28),
        ),
        (  # an embedding has them before its numbers
            {"usage": {"prompt_tokens": 5, "total_tokens": 5}, "data": [0.123456789] * 10_000},
            TokenUsage(5, None),
        ),
        ({"usage": {"prompt_tokens": 5, "total_tokens": 5}}, TokenUsage(5, None)),
        (  # Ollama's
            {"response": "a", "done": True, "prompt_eval_count": 12, "eval_count": 34},
            TokenUsage(12, 34),
        ),
        ({"embeddings": [[0.1] * 100], "prompt_eval_count": 3}, TokenUsage(3, None)),
        ({"usage": None}, NO_USAGE),
        ({"content": json.dumps({"usage": USAGE})}, NO_USAGE),
        ({"usage": {"prompt_tokens": 10**30}}, NO_USAGE),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_counts_are_read_in_whatever_pieces_they_come(
    body: object, usage: TokenUsage, size: int
) -> None:
    """Of each API; a text of the model that looks like them is none, nor is an absurd number."""
    text = json.dumps(body).encode()
    tail = AnswerTail()
    for start in range(0, len(text), size):
        tail.add(text[start : start + size])
    assert tail.usage() == usage


def test_the_last_event_of_a_stream_counts() -> None:
    tail = AnswerTail()
    for number in range(5):
        event = {"timings": {"prompt_n": 2, "predicted_n": number}}
        tail.add(f"data: {json.dumps(event)}\n\n".encode())
    tail.add(b"data: [DONE]\n\n")
    assert tail.usage() == TokenUsage(2, 4)


def test_the_first_event_of_anthropics_stream_has_the_prompt() -> None:
    tail = AnswerTail()
    start = {"message": {"usage": {"cache_read_input_tokens": 3, "input_tokens": 4}}}
    tail.add(f"event: message_start\ndata: {json.dumps(start)}\n\n".encode())
    for _ in range(1000):
        tail.add(b'event: content_block_delta\ndata: {"delta":{"text":" row"}}\n\n')
    tail.add(b'event: message_delta\ndata: {"usage":{"output_tokens":1000}}\n\n')
    assert tail.usage() == TokenUsage(7, 1000, 3)
    assert tail.events == 1002


def test_no_more_than_the_ends_are_kept() -> None:
    tail = AnswerTail()
    for _ in range(100):
        tail.add(b"x" * TAIL_BYTES)
    assert (len(tail._head), len(tail._tail)) == (HEAD_BYTES, TAIL_BYTES)
    assert tail.usage() == NO_USAGE


def test_a_record_has_the_counts_of_a_body_that_passed() -> None:
    """In full duplex; and never those of another exchange."""
    fleet = SmallFleet(2)
    records = []
    for text in (json.dumps({"usage": USAGE}).encode(), b"{}"):
        exchange = Exchange(fleet.dispatcher, ExchangeOptions(), fleet.now)
        exchange.feed(envoy.with_body(envoy.request_headers(), is_duplex=True), fleet.now)
        exchange.feed(envoy.body(b'{"prompt":"p"}'), fleet.now)
        exchange.feed(envoy.response_headers(), fleet.now)
        part = envoy.part("response_body")
        part.response_body.body = text
        part.response_body.end_of_stream = True
        exchange.feed(part, fleet.now)
        while exchange.take_reply() is not None:
            pass
        records.append(exchange.end(fleet.now))
    first, second = records
    assert (first.outcome, first.input_tokens, first.output_tokens) == (Outcome.SERVED, 12, 34)
    assert (second.input_tokens, second.output_tokens) == (None, None)
