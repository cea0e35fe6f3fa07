"""Claims about extproc/telemetry/spans.py."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv._incubating.attributes import http_attributes as http
from opentelemetry.semconv._incubating.attributes import url_attributes as url
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.semconv.schemas import Schemas

from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.placement.load_record import LoadRecord
from extproc.core.rejection import Reason
from extproc.telemetry.spans import (
    MAX_CHARS,
    SCHEMA_URL,
    UNKNOWN_SERVER,
    Server,
    exchange_spans,
    load_spans,
)
from extproc.telemetry.trace_context import TraceParent
from tests.fakes.otlp_receiver import text_attributes
from tests.telemetry.records import record

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = TraceParent(TRACE_ID, "b7ad6b7169203331", True)
ENDED_AT_NS = 1_000_000_000_000


def spans_of(
    told: ExchangeRecord, parent: TraceParent | None = None, server: Server = UNKNOWN_SERVER
) -> list[Span]:
    return exchange_spans(told, TRACE_ID, parent, ENDED_AT_NS, Random(1), server)


def test_exchange_with_its_pick_and_its_wait() -> None:
    """Three spans of one trace, the latter two below the first, with times from the record."""
    root, pick, queue = spans_of(record(), PARENT)
    names = [span.name for span in (root, pick, queue)]
    assert names == ["coxswain.exchange", "coxswain.pick", "coxswain.queue"]
    assert {span.trace_id.hex() for span in (root, pick, queue)} == {TRACE_ID}
    assert root.parent_span_id.hex() == PARENT.span_id
    assert pick.parent_span_id == queue.parent_span_id == root.span_id
    assert len({span.span_id for span in (root, pick, queue)}) == 3
    began_at_ns = ENDED_AT_NS - 2_000_000_000
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (began_at_ns, ENDED_AT_NS)
    assert pick.end_time_unix_nano - pick.start_time_unix_nano == 100_000
    assert queue.end_time_unix_nano == began_at_ns + 500_000_000


def test_pick_and_wait_begin_when_enough_of_the_request_had_come() -> None:
    """An upload of a second before them is neither; who leaves in it was never decided on."""
    root, pick, queue = spans_of(record(decided_at=11.0))
    decided_at_ns = root.start_time_unix_nano + 1_000_000_000
    assert pick.start_time_unix_nano == queue.start_time_unix_nano == decided_at_ns
    assert queue.end_time_unix_nano == decided_at_ns + 500_000_000
    assert len(spans_of(record(outcome=Outcome.WITHDRAWN, waited_s=0.0, decided_at=None))) == 1


def test_no_wait_no_queue_span() -> None:
    """Who was served at once never was in the queue; who took no slot was not picked."""
    assert len(spans_of(record(waited_s=0.0))) == 2
    assert len(spans_of(record(waited_s=0.0, outcome=Outcome.PASSED))) == 1


def test_a_trace_that_begins_here_has_no_parent() -> None:
    """Without a caller's span the exchange is the root."""
    assert spans_of(record())[0].parent_span_id == b""


def test_attributes() -> None:
    """What is known is there under the names of the conventions, what is not is left out."""
    attributes = text_attributes(spans_of(record(model="tiny"))[0])
    assert attributes["server.address"] == "10.0.0.1" and attributes["server.port"] == "8080"
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == "tiny"
    assert attributes["http.response.status_code"] == "200"
    assert attributes["coxswain.outcome"] == "served"
    assert attributes["coxswain.queue.wait_s"] == "0.5"
    assert attributes["coxswain.time_to_first_token_s"] == "0.75"
    bare = record(endpoint=None, status=0, first_token_s=None, request_id="")
    names = set(text_attributes(spans_of(bare)[0]))
    assert not {"server.address", "http.response.status_code", "coxswain.request.id"} & names


def test_rejected_and_broken_ones_are_errors() -> None:
    """Their status says so and names the reason; a client that left the queue is no error."""
    root = spans_of(record(outcome=Outcome.REJECTED, reason=Reason.QUEUE_FULL))[0]
    assert root.status.code == Status.STATUS_CODE_ERROR and root.status.message == "queue-full"
    assert spans_of(record(outcome=Outcome.WITHDRAWN))[0].status.code == 0


def test_texts_of_foreign_requests_are_cut() -> None:
    """A path of a megabyte does not become an attribute of a megabyte."""
    long = record(path="/" + "x" * 1_000_000, request_id="y" * 1_000_000)
    assert all(len(value) <= MAX_CHARS for value in text_attributes(spans_of(long)[0]).values())


def test_attributes_have_the_names_of_the_conventions() -> None:
    """Of the version that the spans name, as the package of that version has them."""
    known = {
        value
        for module in (error_attributes, gen_ai, http, server_attributes, url)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    told = record(model="q", method="BREW", status=500, input_tokens=9, output_tokens=0)
    found = spans_of(told, server=Server("gpu-1", "qwen"))[0]
    names = {name for name in text_attributes(found) if not name.startswith("coxswain.")}
    assert names <= known, names - known
    assert len(names) == 13
    assert Schemas.V1_44_0.value == SCHEMA_URL


def test_the_server_and_its_model_are_named() -> None:
    """By the endpoint's name in the settings, and by the model's own name."""
    attributes = text_attributes(spans_of(record(model="q"), server=Server("gpu-1", "qwen"))[0])
    assert attributes["coxswain.endpoint.name"] == "gpu-1"
    assert attributes["gen_ai.request.model"] == "q"
    assert attributes["gen_ai.response.model"] == "qwen"
    names = text_attributes(spans_of(record())[0]).keys()
    assert not {"coxswain.endpoint.name", "gen_ai.response.model"} & names


def test_tokens_are_there_where_the_response_showed_them() -> None:
    attributes = text_attributes(spans_of(record(input_tokens=9, output_tokens=0))[0])
    assert attributes["gen_ai.usage.input_tokens"] == "9"
    assert attributes["gen_ai.usage.output_tokens"] == "0"
    assert not any("usage" in name for name in text_attributes(spans_of(record())[0]))


@pytest.mark.parametrize(
    ("method", "expected"),
    [("POST", {"http.request.method": "POST"}), ("", {})]
    + [
        (odd, {"http.request.method": "_OTHER", "http.request.method_original": odd})
        for odd in ("BREW", "post")
    ],
)
def test_the_method_is_one_of_few(method: str, expected: dict[str, str]) -> None:
    """A client can write any, and it is upper-case or another one."""
    attributes = text_attributes(spans_of(record(method=method))[0])
    assert {key: value for key, value in attributes.items() if "method" in key} == expected


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, None),
        ({"status": 404}, None),
        ({"status": 500}, "500"),
        ({"outcome": Outcome.PASSED, "status": 503}, "503"),
        ({"outcome": Outcome.BROKEN}, "broken"),
        ({"outcome": Outcome.WITHDRAWN, "status": 0}, None),
        ({"outcome": Outcome.REJECTED, "reason": Reason.QUEUE_FULL, "status": 429}, "queue-full"),
    ],
)
def test_the_type_of_an_error(changes: dict[str, Any], error: str | None) -> None:
    """A span with a type has the status error, one without has none."""
    root = spans_of(record(**changes))[0]
    assert text_attributes(root).get("error.type") == error
    assert (root.status.code == Status.STATUS_CODE_ERROR) is (error is not None)


LOAD = LoadRecord(
    machine="gpu-1",
    model="qwen",
    displaced=("coder", "tiny"),
    reason="2 requests waited",
    decided_at=10.0,
    began_at=13.0,
    ended_at=20.0,
)


def test_a_load_with_the_drain_before_it() -> None:
    load, drain = load_spans(LOAD, TRACE_ID, ENDED_AT_NS, Random(1))
    assert (load.name, drain.name) == ("coxswain.model.load", "coxswain.model.drain")
    assert load.end_time_unix_nano == ENDED_AT_NS and not load.parent_span_id
    assert load.end_time_unix_nano - load.start_time_unix_nano == 10_000_000_000
    assert drain.parent_span_id == load.span_id and drain.trace_id == load.trace_id
    assert drain.start_time_unix_nano == load.start_time_unix_nano
    assert drain.end_time_unix_nano - drain.start_time_unix_nano == 3_000_000_000
    assert text_attributes(load) == {
        "coxswain.model": "qwen",
        "coxswain.machine": "gpu-1",
        "coxswain.load.reason": "2 requests waited",
        "coxswain.load.displaced": "coder, tiny",
        "coxswain.load.drain_s": "3.0",
        "coxswain.load.load_s": "7.0",
    }


def test_a_load_that_failed_is_an_error() -> None:
    """Without a drain there is one span."""
    failed = replace(LOAD, began_at=10.0, displaced=(), problem="exit status 3" * 100)
    (load,) = load_spans(failed, TRACE_ID, ENDED_AT_NS, Random(1))
    assert load.status.code == Status.STATUS_CODE_ERROR
    assert load.status.message.startswith("exit status 3") and len(load.status.message) == MAX_CHARS
    assert text_attributes(load)["error.type"] == "load-failed"
