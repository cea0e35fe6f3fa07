"""Claims about extproc/stream/envoy/codec/replies.py."""

from __future__ import annotations

import json

import pytest

from extproc import header_names
from extproc.core.address import Address
from extproc.core.rejection import Reason
from extproc.stream.envoy import codec
from tests.fakes import envoy_messages as envoy

A, B = Address("10.0.0.1", 8080), Address("2001:db8::1", 8080)


def test_a_destination() -> None:
    """The header and the metadata are equal, first choice first; control headers are removed."""
    answer = codec.destination(
        (A, B), "e1", removed=(header_names.ADAPTER, header_names.QUEUE_TIMEOUT)
    )
    value = f"{A},{B}"
    common = answer.request_headers.response
    assert envoy.set_headers(common.header_mutation) == {header_names.DESTINATION: value}
    assert list(common.header_mutation.remove_headers) == [
        header_names.ADAPTER,
        header_names.QUEUE_TIMEOUT,
    ]
    fields = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert fields[header_names.DESTINATION].string_value == value
    assert fields[header_names.EXCHANGE].string_value == "e1"
    option = common.header_mutation.set_headers[0]
    assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD, "a client's value is lost"


def test_retries_end_with_the_list() -> None:
    answer = codec.destination((A, B), "e1", retries=1)
    headers = envoy.set_headers(answer.request_headers.response.header_mutation)
    assert headers == {header_names.DESTINATION: f"{A},{B}", "x-envoy-max-retries": "1"}


def test_nobody_to_send_to() -> None:
    """Then the policy below decides: no header, no destination, but still no control headers."""
    answer = codec.destination((), "e1")
    assert answer.WhichOneof("response") == "request_headers"
    mutation = answer.request_headers.response.header_mutation
    assert envoy.set_headers(mutation) == {}
    assert list(mutation.remove_headers) == [header_names.DESTINATION], "its client chooses neither"
    fields = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert list(fields) == [header_names.EXCHANGE], "Envoy's report must not count it as a bypass"


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        (Reason.QUEUE_FULL, 429, "rate_limit_error"),
        (Reason.QUEUE_TIMEOUT, 504, "server_error"),
        (Reason.NO_ENDPOINT, 503, "server_error"),
        (Reason.SHUTTING_DOWN, 503, "server_error"),
        (Reason.CANCELLED, 503, "server_error"),
        (Reason.BAD_REQUEST, 400, "invalid_request_error"),
    ],
)
def test_a_rejection(reason: Reason, status: int, kind: str) -> None:
    """OpenAI's shape, the reason in a header, and when to come again where that makes sense."""
    answer = codec.rejection(reason, 2.1, "Because." if reason is Reason.BAD_REQUEST else "")
    immediate = answer.immediate_response
    assert envoy.rejection(answer) == (status, reason.value)
    error = json.loads(immediate.body)["error"]
    assert (error["type"], error["code"]) == (kind, reason.value)
    assert error["message"].endswith(".")
    headers = envoy.set_headers(immediate.headers)
    assert headers["content-type"] == "application/json"
    is_final = reason in (Reason.BAD_REQUEST, Reason.CANCELLED)
    assert headers.get("retry-after") == (None if is_final else "3")
    assert immediate.details == f"coxswain_{reason.value}"
    assert headers["access-control-allow-origin"] == "*"
    assert headers["access-control-expose-headers"] == "*"


def test_an_answer_of_ours() -> None:
    """JSON that pages of any origin may read, as they may read a llama-server's."""
    immediate = codec.immediate_json(b"{}").immediate_response
    assert (immediate.status.code, immediate.body) == (200, b"{}")
    assert codec.immediate_json(b"{}", 503).immediate_response.status.code == 503
    assert envoy.set_headers(immediate.headers) == {
        "content-type": "application/json",
        "access-control-allow-origin": "*",
        "access-control-expose-headers": "*",
    }


def test_every_reason_has_its_answer() -> None:
    """A new reason cannot be forgotten here."""
    for reason in Reason:
        status, _ = envoy.rejection(codec.rejection(reason, 0.0, "Because."))
        assert 400 <= status < 600
        if reason is not Reason.BAD_REQUEST:
            assert json.loads(codec.rejection(reason, 0.0).immediate_response.body)


@pytest.mark.parametrize(("seconds", "milliseconds"), [(65.0, 65_000), (0.0, 1), (-1.0, 1)])
def test_a_hold(seconds: float, milliseconds: int) -> None:
    """Alone in its message, and never below Envoy's smallest."""
    answer = codec.extend_timeout(seconds)
    assert answer.WhichOneof("response") is None
    assert answer.override_message_timeout.ToMilliseconds() == milliseconds


@pytest.mark.parametrize("kind", ["request_body", "response_body", "response_trailers"])
def test_unchanged(kind: str) -> None:
    """A question of each kind has an answer of that kind, with nothing in it."""
    answer = codec.unchanged(kind)
    assert answer.WhichOneof("response") == kind
    assert getattr(answer, kind).ByteSize() == 0


def test_added_response_headers() -> None:
    """They overwrite what a server sent under these names."""
    answer = codec.routing_headers("", 20, 1)
    mutation = answer.response_headers.response.header_mutation
    assert envoy.set_headers(mutation) == {
        "x-coxswain-queue-ms": "20",
        "x-coxswain-attempts": "1",
        "access-control-expose-headers": "*",
    }
    assert (
        mutation.set_headers[0].append_action == mutation.set_headers[0].OVERWRITE_IF_EXISTS_OR_ADD
    )


def test_an_unknown_model_is_rejected_in_openais_words() -> None:
    immediate = codec.rejection(Reason.MODEL_NOT_FOUND, 2.1).immediate_response
    error = json.loads(immediate.body)["error"]
    assert (immediate.status.code, error["type"]) == (404, "invalid_request_error")
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert envoy.set_headers(immediate.headers)["x-coxswain-reason"] == "model-not-found"


def test_a_prompt_that_is_too_long_is_rejected_in_openais_words() -> None:
    """Its clients shorten a conversation by them."""
    answer = codec.rejection(Reason.CONTEXT_LENGTH_EXCEEDED, 2.1)
    immediate = answer.immediate_response
    error = json.loads(immediate.body)["error"]
    assert immediate.status.code == 400
    assert error["code"] == "context_length_exceeded" and error["param"] == "messages"
    assert error["type"] == "invalid_request_error" and "context" in error["message"]
    headers = {one.header.key: one.header.raw_value for one in immediate.headers.set_headers}
    assert headers["x-coxswain-reason"] == b"context-length-exceeded"
    assert "retry-after" not in headers
