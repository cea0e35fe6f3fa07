"""Claims about extproc/stream/envoy/codec/headers.py."""

from __future__ import annotations

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from extproc import header_names
from extproc.core.address import Address
from extproc.pb import external_processor_pb2 as pb
from extproc.stream.envoy import codec
from extproc.stream.envoy.codec.headers import MAX_ID_CHARS, MAX_PATH_CHARS
from tests.fakes import envoy_messages as envoy

A, B = Address("10.0.0.1", 8080), Address("2001:db8::1", 8080)


def head(request: pb.ProcessingRequest) -> codec.RequestHead:
    return codec.read_request_head(request.request_headers)


def response(request: pb.ProcessingRequest) -> codec.ResponseHead:
    return codec.read_response_head(request)


# Request headers


def test_a_request() -> None:
    """Method, path without query, the client's id and its patience, in seconds."""
    request = envoy.request_headers(
        "/v1/completions?x=1", x_request_id="abc", x_coxswain_queue_timeout_ms="1500"
    )
    read = head(request)
    assert (read.method, read.path, read.id) == ("POST", "/v1/completions", "abc")
    assert read.queue_timeout_s == 1.5


def test_what_is_not_reported() -> None:
    """Without the optional headers: no id, the usual patience."""
    read = head(envoy.request_headers())
    assert (read.id, read.queue_timeout_s) == ("", None)


def test_when_a_request_arrived() -> None:
    """As Envoy 1.40 writes it; None for anything else."""
    request = envoy.request_headers()
    assert codec.read_arrival(request) is None
    envoy.set_arrival(request, "1795660395.250000")
    assert codec.read_arrival(request) == 1795660395.25
    for text in ("soon", "", "nan", "inf", "-1.0", "1e9", "1_0", "9" * 400, "\u0661.5"):
        other = envoy.request_headers()
        envoy.set_arrival(other, text)
        assert codec.read_arrival(other) is None


def test_values_as_older_envoys_send_them() -> None:
    """`value` where `raw_value` is empty."""
    request = pb.ProcessingRequest()
    for key, value in ((":method", "POST"), (":path", "/completion")):
        header = request.request_headers.headers.headers.add()
        header.key, header.value = key, value
    assert head(request).path == "/completion"


def test_the_first_of_two_values_counts() -> None:
    """A client cannot overrule what stands before."""
    request = envoy.request_headers(x_request_id="first")
    envoy.header_map(request.request_headers, {"x-request-id": "second"})
    assert head(request).id == "first"


@pytest.mark.parametrize("path", [None, ""])
def test_no_path(path: str | None) -> None:
    """No server could answer: refused with a sentence."""
    with pytest.raises(codec.BadRequestError, match="no path"):
        head(envoy.request_headers(path))


@pytest.mark.parametrize(
    "text",
    ["", " ", "-1", "1.5", "1e3", "ten", "0x10", "٣", "1_000", "9" * 16, "9" * 5000, b"\xff\xfe"],
)
def test_an_impossible_patience(text: str | bytes) -> None:
    """A whole number of milliseconds, or the client is told what would be one."""
    with pytest.raises(codec.BadRequestError, match="whole number of milliseconds"):
        head(envoy.request_headers(x_coxswain_queue_timeout_ms=text))


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("1", 0.001), ("00250", 0.25)])
def test_a_possible_patience(text: str, seconds: float) -> None:
    """From 0 up."""
    assert head(envoy.request_headers(x_coxswain_queue_timeout_ms=text)).queue_timeout_s == seconds


@pytest.mark.parametrize("header", ["x-slo-ttft-ms", "x-llm-d-slo-ttft-ms"])
def test_an_slo_under_either_name(header: str) -> None:
    message = envoy.request_headers(**{header: "250"})
    assert (head(message).ttft_s, head(message).controls) == (0.25, (header,))


@pytest.mark.parametrize("header", header_names.UNUSED)
def test_what_other_pickers_obey_is_taken_off_and_means_nothing(header: str) -> None:
    found = head(envoy.request_headers(**{header: "large"}))
    assert found == head(envoy.request_headers())._replace(controls=(header,))


def test_an_absurd_content_length_is_not_ours() -> None:
    """It is between the client and the server; it neither helps nor hinders a decision."""
    for text in ("-5", "99999999999999999999999", "x", b"\xff"):
        assert head(envoy.request_headers(content_length=text)).path == envoy.COMPLETION


def test_huge_values_are_cut() -> None:
    """They are kept for as long as the exchange lives, and are written into logs."""
    long = "x" * 60_000
    read = head(envoy.request_headers("/" * 60_000, x_request_id=long, traceparent=long))
    assert (len(read.path), len(read.id)) == (MAX_PATH_CHARS, MAX_ID_CHARS)
    assert len(read.trace_parent) == MAX_ID_CHARS


@given(
    st.dictionaries(st.text().filter(lambda key: key != header_names.QUEUE_TIMEOUT), st.binary()),
    st.binary(min_size=1),
)
def test_any_bytes_are_read(headers: dict[str, bytes], value: bytes) -> None:
    """Broken bytes become replacement characters, never an exception."""
    request = envoy.request_headers()
    envoy.header_map(request.request_headers, headers | {":path": b"/\xff", "x-request-id": value})
    read = head(request)
    assert read.path == envoy.COMPLETION
    assert isinstance(read.id, str)


# Response headers


def test_who_served() -> None:
    """By Envoy's attribute, in either family of addresses."""
    for address in (A, B):
        read = response(envoy.response_headers(served=str(address), attempts=2))
        assert (read.served, read.attempts, read.status) == (address, 2, 200)
        assert not read.is_local_reply


def test_who_served_by_metadata() -> None:
    """The override policy's own note, where the attribute is not sent."""
    read = response(envoy.response_headers(served=str(A), as_metadata=True))
    assert read.served == A


def test_an_attribute_goes_before_metadata() -> None:
    """The attribute tells the connection, the note the policy's choice."""
    request = envoy.response_headers(served=str(A), as_metadata=True)
    attributes = Struct()
    attributes["upstream.address"] = str(B)
    request.attributes[envoy.FILTER] = attributes.SerializeToString()
    assert response(request).served == B


def test_attributes_that_cannot_be_read_are_left_out() -> None:
    request = envoy.response_headers(served=str(A))
    request.attributes[envoy.FILTER] = b"\xff"
    assert response(request) == response(envoy.response_headers(attempts=None, details=""))


def test_nothing_but_a_status() -> None:
    """Attributes and metadata are optional: one attempt, nobody known, no local reply."""
    request = pb.ProcessingRequest()
    envoy.header_map(request.response_headers, {":status": "204"})
    read = response(request)
    assert (read.status, read.served, read.attempts, read.is_stream) == (204, None, 1, False)
    assert not read.is_local_reply


@pytest.mark.parametrize(
    ("headers", "has_json"),
    [
        ({}, True),
        ({"content_type": "text/plain"}, True),
        ({"content_encoding": "gzip"}, True),
        ({"content_type": "Multipart/Form-Data; boundary=x"}, False),
        ({"content_type": "audio/wav"}, False),
    ],
)
def test_bodies_that_may_be_json(headers: dict[str, str], has_json: bool) -> None:
    """Names of media types may be written in capitals."""
    assert head(envoy.with_body(envoy.request_headers(**headers))).has_json is has_json


@pytest.mark.parametrize(
    ("headers", "form", "encoding"),
    [
        ({}, "", ""),
        ({"content_encoding": " Identity "}, "", ""),
        ({"content_encoding": "GZip"}, "", "gzip"),
        ({"content_encoding": "gzip, zstd"}, "", "gzip, zstd"),
        (
            {"content_type": "Multipart/Form-Data; boundary=Xy"},
            "Multipart/Form-Data; boundary=Xy",
            "",
        ),
    ],
)
def test_forms_and_encodings(headers: dict[str, str], form: str, encoding: str) -> None:
    read = head(envoy.with_body(envoy.request_headers(**headers)))
    assert (read.form, read.encoding) == (form, encoding)
    bare = head(envoy.request_headers(**headers))
    assert (bare.form, bare.encoding) == ("", ""), "there is no body"


@pytest.mark.parametrize(
    ("query", "model", "may_load"),
    [
        ("", None, True),
        ("?model=beta", "beta", True),
        ("?a=1&model=a%2Fb+c&model=other", "a/b c", True),
        ("?model=beta&autoload=false", "beta", False),
        ("?model=beta&autoload=1", "beta", True),
        ("?model=", None, True),
        ("?" + "model=&" * 200, None, True),
    ],
)
def test_the_model_of_a_query(query: str, model: str | None, may_load: bool) -> None:
    """As routers read it: the first value, and whether they may load it."""
    read = head(envoy.request_headers(path=f"/props{query}", method="GET"))
    assert (read.path, read.queried_model, read.may_load) == ("/props", model, may_load)


@pytest.mark.parametrize(
    ("content_type", "is_stream"),
    [
        ("text/event-stream", True),
        ("text/event-stream; charset=utf-8", True),
        ("application/json", False),
        ("", False),
    ],
)
def test_event_streams(content_type: str, is_stream: bool) -> None:
    """Known by their content type."""
    assert response(envoy.response_headers(content_type=content_type)).is_stream is is_stream


@pytest.mark.parametrize("details", ["upstream_reset_before_response_started{x}", "coxswain_shed"])
def test_local_replies(details: str) -> None:
    """Everything but `via_upstream` is Envoy's own answer."""
    assert response(envoy.response_headers("503", details=details)).is_local_reply


@pytest.mark.parametrize("status", ["", "abc", "-1", "٣", "9" * 5000, "20"])
def test_an_odd_status_is_none(status: str) -> None:
    """0 stands for what cannot be read."""
    assert response(envoy.response_headers(status)).status == 0


@pytest.mark.parametrize("attempts", [None, 0, -3, float("nan"), float("inf"), float("-inf")])
def test_odd_attempts_are_one(attempts: float | None) -> None:
    """A number that cannot be counts as a plain exchange."""
    assert response(envoy.response_headers(attempts=attempts)).attempts == 1


@pytest.mark.parametrize(
    "served", ["", "nonsense", "10.0.0.1", "host:80", "10.0.0.1:" + "9" * 5000]
)
def test_an_odd_address_is_nobody(served: str) -> None:
    """What is no address tells nothing."""
    assert response(envoy.response_headers(served=served)).served is None
