"""Between ext_proc messages and values: the only place that knows header names and status codes."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from extproc.core.address import Address, AddressError
from extproc.core.outcome import Reason
from extproc.pb import external_processor_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from extproc.pb import base_pb2, http_status_pb2

DESTINATION: Final = "x-gateway-destination-endpoint"
SERVED: Final = "x-gateway-destination-endpoint-served"
EXCHANGE: Final = "x-coxswain-exchange"
LB_NAMESPACE: Final = "envoy.lb"
FILTER_ATTRIBUTES: Final = "envoy.filters.http.ext_proc"
QUEUE_TIMEOUT: Final = "x-coxswain-queue-timeout-ms"
TRACE_PARENT: Final = "traceparent"
TTFT: Final = "x-slo-ttft-ms"
ADAPTER: Final = "x-lora-adapter"
SESSION: Final = "x-session-id"
OBJECTIVE: Final = ("x-gateway-inference-objective", "x-llm-d-inference-objective")
FAIRNESS_ID: Final = ("x-gateway-inference-fairness-id", "x-llm-d-inference-fairness-id")
CREDENTIALS: Final = ("authorization", "x-api-key")
CONTROL_HEADERS: Final = frozenset({QUEUE_TIMEOUT, TTFT, ADAPTER, *OBJECTIVE, *FAIRNESS_ID})
"""Request headers for us alone: no server sees them."""
FULL_DUPLEX: Final = 4
"""`ProcessingMode.BodySendMode`: chunks flow both ways, and nobody waits for an answer."""
READABLE_MODES: Final = frozenset({0, 2, 3, FULL_DUPLEX})
"""Not streamed chunk by chunk: there the destination must go out before any chunk comes."""
MAX_NAME_CHARS: Final = 256
MAX_ID_CHARS: Final = 200
MAX_PATH_CHARS: Final = 1000
"""Longer ones are cut: they are kept while the exchange lives, and go into logs and traces."""
_MAX_ATTEMPTS: Final = 100

OK: Final = 200
_STATUS: Final = {
    Reason.QUEUE_FULL: 429,
    Reason.QUEUE_TIMEOUT: 504,
    Reason.NO_ENDPOINT: 503,
    Reason.SHUTTING_DOWN: 503,
    Reason.BAD_REQUEST: 400,
    Reason.CANCELLED: 503,
    Reason.UPLOAD_STALLED: 408,
    Reason.SHED: 429,
    Reason.EVICTED: 429,
    Reason.MODEL_NOT_FOUND: 404,
}
_TEXT: Final = {
    Reason.QUEUE_FULL: "All slots are busy and the queue is full.",
    Reason.QUEUE_TIMEOUT: "No slot became free within the time this request may wait.",
    Reason.NO_ENDPOINT: "No llama.cpp endpoint is ready to serve.",
    Reason.SHUTTING_DOWN: "The endpoint picker is shutting down.",
    Reason.CANCELLED: "An operator cancelled this request.",
    Reason.UPLOAD_STALLED: "The rest of the request did not come.",
    Reason.SHED: "All slots are busy, and this kind of request does not wait.",
    Reason.EVICTED: "A more critical request took this one's place in the queue.",
    Reason.MODEL_NOT_FOUND: "No llama.cpp endpoint serves this model or has this adapter.",
}
_FINAL: Final = frozenset(
    {Reason.BAD_REQUEST, Reason.CANCELLED, Reason.MODEL_NOT_FOUND, Reason.UPLOAD_STALLED}
)
"""Refusals after which the same request should not be tried again by itself."""
_ERROR_TYPE: Final = {
    400: "invalid_request_error",
    408: "invalid_request_error",
    429: "rate_limit_error",
}
REQUEST_HEADERS: Final = CONTROL_HEADERS | {
    *(":method", ":path", "x-request-id", TRACE_PARENT, SESSION, *CREDENTIALS),
    *("content-type", "content-encoding", "content-length"),
}
RESPONSE_HEADERS: Final = frozenset({":status", "content-type"})
"""All that is read of an exchange's headers; our Envoy files send no others."""


class BadRequestError(ValueError):
    """A request that cannot be understood; `str(error)` is for the client."""


class RequestHead(NamedTuple):
    """What the request headers say to us, the path without its query.

    Times are None when not asked for. `fairness_id` is the tenant: named by the client, else
    made from its API key by a hash that only this process knows. `has_body` tells that a body
    follows, `has_json` that it may be JSON, `body_bytes` how long it will be, as far as that was
    told. `controls` are the headers that are for us alone.
    """

    method: str
    path: str
    id: str
    queue_timeout_s: float | None = None
    ttft_s: float | None = None
    objective: str | None = None
    fairness_id: str = ""
    session_id: str | None = None
    adapter: str | None = None
    trace_parent: str = ""
    has_body: bool = False
    has_json: bool = False
    body_bytes: int | None = None
    controls: tuple[str, ...] = ()


class ResponseHead(NamedTuple):
    """What the response headers and Envoy's attributes say.

    `served` is the host that answered, None when Envoy itself replied. `is_stream` tells
    an event stream, whose server works on after these headers.
    """

    status: int
    is_stream: bool
    served: Address | None
    attempts: int
    code_details: str

    @property
    def is_local_reply(self) -> bool:
        return self.code_details not in ("", "via_upstream")


def read_request_head(message: pb.HttpHeaders) -> RequestHead:
    """Read what we need; raises `BadRequestError` for a head that no server could answer."""
    found = _pick_out(message.headers, REQUEST_HEADERS)
    path = found.get(":path", "")
    if not path:
        raise BadRequestError("The request has no path.")
    get = found.get
    length = get("content-length", "")
    has_body = not message.end_of_stream
    head = RequestHead(
        method=get(":method", ""),
        path=path.partition("?")[0][:MAX_PATH_CHARS],
        id=get("x-request-id", "")[:MAX_ID_CHARS],
        fairness_id=_tenant(found),
        session_id=_name(get(SESSION)),
        trace_parent=get(TRACE_PARENT, ""),
        has_body=has_body,
        has_json=has_body
        and "content-encoding" not in found
        and not get("content-type", "").startswith(_NOT_JSON),
        body_bytes=int(length) if _is_count(length) else None,
    )
    return head if CONTROL_HEADERS.isdisjoint(found) else _controlled(head, found)


def _controlled(head: RequestHead, found: Mapping[str, str]) -> RequestHead:
    """The same with what the headers for us alone ask for: most requests have none."""
    get = found.get
    return head._replace(
        queue_timeout_s=_milliseconds(get(QUEUE_TIMEOUT)),
        ttft_s=int(ttft) / 1000 if _is_count(ttft := get(TTFT, "")) else None,
        objective=_name(get(OBJECTIVE[0]) or get(OBJECTIVE[1])),
        fairness_id=_name(get(FAIRNESS_ID[0]) or get(FAIRNESS_ID[1])) or head.fairness_id,
        adapter=_name(get(ADAPTER)),
        controls=tuple(filter(CONTROL_HEADERS.__contains__, found)),
    )


_NOT_JSON: Final = ("multipart/", "audio/", "application/octet-stream")
"""Of anything else the body may be JSON: llama-server does not ask what it is called."""


def _name(text: str | None) -> str | None:
    return text[:MAX_NAME_CHARS] if text else None


def _tenant(found: Mapping[str, str]) -> str:
    key = found.get(CREDENTIALS[0]) or found.get(CREDENTIALS[1])
    return f"key-{hash(key) & 0xFFFF_FFFF_FFFF_FFFF:016x}" if key else ""


def read_trace_parent(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The `traceparent` of the stream itself: Envoy's own span, when Envoy traces; else ""."""
    for key, value in metadata:
        if key == TRACE_PARENT:
            return value if isinstance(value, str) else ""
    return ""


def read_response_head(request: pb.ProcessingRequest) -> ResponseHead:
    """Read status, kind and the facts about who served; what is missing or odd is left out."""
    found = _pick_out(request.response_headers.headers, RESPONSE_HEADERS)
    status = found.get(":status", "")
    details, attempts, address = "", 1, ""
    attributes = request.attributes.get(FILTER_ATTRIBUTES) if request.attributes else None
    if attributes is not None:
        get = attributes.fields.get
        if (value := get("response.code_details")) is not None:
            details = value.string_value
        if (value := get("upstream.request_attempt_count")) is not None:
            attempts = _attempts(value.number_value)
        if (value := get("upstream.address")) is not None:
            address = value.string_value
    if not address and LB_NAMESPACE in request.metadata_context.filter_metadata:
        served = request.metadata_context.filter_metadata[LB_NAMESPACE].fields
        if SERVED in served:
            address = served[SERVED].string_value
    return ResponseHead(
        status=int(status) if len(status) == 3 and status.isascii() and status.isdigit() else 0,
        is_stream=found.get("content-type", "").startswith("text/event-stream"),
        served=_address(address),
        attempts=attempts,
        code_details=details,
    )


def destination(
    addresses: tuple[Address, ...],
    exchange_id: str,
    *,
    kind: str = "request_headers",
    removed: tuple[str, ...] = (),
) -> pb.ProcessingResponse:
    """Send the request to the first of `addresses`, the others being fallbacks in order.

    `kind` is the question that this answers: the request's headers, or its body. `removed` are
    the headers that no server should see.
    """
    response = pb.ProcessingResponse.FromString(_way_to(addresses, kind, removed))
    if addresses:
        fields = response.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields
        fields[EXCHANGE].string_value = exchange_id
    return response


@lru_cache(maxsize=4096)
def _way_to(addresses: tuple[Address, ...], kind: str, removed: tuple[str, ...]) -> bytes:
    """The same for whatever exchange, as bytes: to read them is faster than to build it anew."""
    response = pb.ProcessingResponse()
    answer = getattr(response, kind)
    answer.SetInParent()  # also without any address it is an answer
    mutation = answer.response.header_mutation
    mutation.remove_headers.extend(removed)
    if addresses:
        value = ",".join(map(str, addresses))
        _set(mutation, DESTINATION, value)
        fields = response.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields
        fields[DESTINATION].string_value = value
    return response.SerializeToString()


def replace_body(response: pb.ProcessingResponse, body: bytes) -> None:
    """Put another body into an answer about the whole body.

    Its length is no longer told: Envoy 1.40 answers 500 to a length that it or we set anew.
    """
    common = response.request_body.response
    common.header_mutation.remove_headers.append("content-length")
    common.body_mutation.body = body


def ready_answer(body: bytes) -> pb.ProcessingResponse:
    """Answer 200 with JSON instead of a server."""
    response = pb.ProcessingResponse()
    immediate = response.immediate_response
    immediate.status.code = cast("http_status_pb2.StatusCode", OK)
    immediate.details = "coxswain_answered"
    immediate.body = body
    _set(immediate.headers, "content-type", "application/json")
    return response


def chunk(kind: str, body: bytes, *, is_last: bool) -> pb.ProcessingResponse:
    """Send a piece of a body on its way in full-duplex mode."""
    response = pb.ProcessingResponse()
    streamed = getattr(response, kind).response.body_mutation.streamed_response
    streamed.body = body
    streamed.end_of_stream = is_last
    return response


@cache
def ask_for_body() -> pb.ProcessingResponse:
    """Let the headers wait in Envoy and send the first part of the body, as much as it keeps.

    What is not repeated here would be switched off for this exchange. The message is shared:
    change it nowhere.
    """
    response = pb.ProcessingResponse()
    response.request_headers.SetInParent()
    mode = response.mode_override
    mode.response_header_mode = mode.SEND
    mode.request_body_mode = mode.BUFFERED_PARTIAL
    mode.response_trailer_mode = mode.SEND
    return response


@lru_cache(maxsize=1024)  # most requests did not wait, and there are few servers
def told_way(served: Address | None, waited_ms: int, attempts: int) -> pb.ProcessingResponse:
    """Let the answer through, with headers that tell the client about the way of its request:
    who served, how long it was in line, how often Envoy tried.

    The message is shared: change it nowhere.
    """
    response = pb.ProcessingResponse()
    mutation = response.response_headers.response.header_mutation
    if served is not None:
        _set(mutation, "x-coxswain-endpoint", str(served))
    _set(mutation, "x-coxswain-queue-ms", str(waited_ms))
    _set(mutation, "x-coxswain-attempts", str(attempts))
    return response


def hold(timeout_s: float) -> pb.ProcessingResponse:
    """Ask Envoy to wait for the real answer that much longer (at least 1 ms)."""
    response = pb.ProcessingResponse()
    response.override_message_timeout.FromMilliseconds(max(1, ceil(timeout_s * 1000)))
    return response


def refusal(reason: Reason, retry_after_s: float, text: str = "") -> pb.ProcessingResponse:
    """Answer instead of a server, in OpenAI's error shape."""
    status = _STATUS[reason]
    response = pb.ProcessingResponse()
    immediate = response.immediate_response
    immediate.status.code = cast("http_status_pb2.StatusCode", status)
    immediate.details = f"coxswain_{reason.value}"
    error = {
        "message": text or _TEXT[reason],
        "type": _ERROR_TYPE.get(status, "server_error"),
        "code": reason.value,
    }
    immediate.body = json.dumps({"error": error}).encode()
    _set(immediate.headers, "content-type", "application/json")
    _set(immediate.headers, "x-coxswain-reason", reason.value)
    if reason not in _FINAL:
        _set(immediate.headers, "retry-after", str(ceil(retry_after_s)))
    return response


@lru_cache(maxsize=8)
def unchanged(kind: str) -> pb.ProcessingResponse:
    """Let a part of the exchange through as it is; `kind` is the question's field name.

    The message is shared: change it nowhere.
    """
    response = pb.ProcessingResponse()
    getattr(response, kind).SetInParent()
    return response


def _set(mutation: pb.HeaderMutation, key: str, value: str) -> None:
    option = mutation.set_headers.add()
    option.header.key = key
    option.header.raw_value = value.encode()
    option.append_action = option.OVERWRITE_IF_EXISTS_OR_ADD


def _pick_out(headers: base_pb2.HeaderMap, wanted: frozenset[str]) -> dict[str, str]:
    """The first value of each wanted header; broken bytes become replacement characters."""
    found: dict[str, str] = {}
    for header in headers.headers:
        key = header.key
        if key in wanted and key not in found:
            found[key] = header.raw_value.decode("utf-8", "replace") or header.value
    return found


def _milliseconds(text: str | None) -> float | None:
    if text is None:
        return None
    if not _is_count(text):
        raise BadRequestError(f"{QUEUE_TIMEOUT} must be a whole number of milliseconds, 0 or more.")
    return int(text) / 1000


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _attempts(number: float) -> int:
    """How often Envoy tried; a number that cannot be is one try."""
    return int(number) if 1 <= number <= _MAX_ATTEMPTS else 1


@lru_cache(maxsize=16_384)  # the same few servers, again and again
def _address(text: str) -> Address | None:
    try:
        return Address.parse(text) if text else None
    except AddressError:
        return None
