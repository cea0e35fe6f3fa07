"""Builds the replies to Envoy: destination, waiting, rejection."""

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from math import ceil
from types import MappingProxyType
from typing import Final, cast

from extproc.core.address import Address
from extproc.core.constraints import FIRST_TIER
from extproc.core.rejection import Reason
from extproc.header_names import (
    ATTEMPTS,
    CLIENT,
    DESTINATION,
    ENDPOINT,
    EXCHANGE,
    LB_NAMESPACE,
    MAX_RETRIES,
    QUEUE_MS,
    READABLE,
    REASON,
    TIER,
    UNBOUNDED,
    UPLOAD,
)
from extproc.pb import external_processor_pb2 as pb
from extproc.pb import http_status_pb2
from extproc.runners.apis import CLOSED, UNKNOWN

OK: Final = 200
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
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
    Reason.BLOCKED_PATH: 403,
    Reason.UNKNOWN_PATH: 404,
    Reason.INTERNAL_ERROR: 500,
    Reason.POISON_REQUEST: 502,
    Reason.RATE_LIMITED: 429,
    Reason.CONTEXT_LENGTH_EXCEEDED: 400,
    Reason.INVALID_API_KEY: 401,
    Reason.MODEL_FAILED: 503,
    Reason.UNSUPPORTED_ENCODING: 415,
    Reason.CONVERSATION_NOT_FOUND: 404,
    Reason.REJECTED_BY_RULE: 403,
    Reason.BOUND_REACHED: 429,
    Reason.BUDGET_USED_UP: 429,
    Reason.OBJECTIVE_NOT_ALLOWED: 403,
    Reason.NO_POOL: 404,
}
_TEXT: Final = {
    Reason.QUEUE_FULL: "All slots are busy and the queue is full.",
    Reason.QUEUE_TIMEOUT: "No slot became free within the time limit of this request.",
    Reason.NO_ENDPOINT: "No endpoint is ready to serve.",
    Reason.SHUTTING_DOWN: "The endpoint picker is shutting down.",
    Reason.CANCELLED: "An operator cancelled this request.",
    Reason.UPLOAD_STALLED: "The rest of the request did not arrive.",
    Reason.SHED: "All slots are busy, and sheddable requests are not queued.",
    Reason.EVICTED: "The queue is full, and a more critical request replaced this one.",
    Reason.MODEL_NOT_FOUND: "No endpoint serves this model or has this adapter.",
    Reason.BLOCKED_PATH: CLOSED,
    Reason.UNKNOWN_PATH: UNKNOWN,
    Reason.INTERNAL_ERROR: "The endpoint picker lost track of this request.",
    Reason.POISON_REQUEST: "Two servers died while they processed this request, so it is "
    "rejected for some minutes. Change it before you try again.",
    Reason.RATE_LIMITED: "The limit of this API key is reached.",
    Reason.CONTEXT_LENGTH_EXCEEDED: "The messages are longer than the context of every server of "
    "this model. Please reduce their length.",
    Reason.MODEL_FAILED: "The servers of this model failed.",
    Reason.UNSUPPORTED_ENCODING: "The content-encoding of a request must be gzip, deflate or zstd, "
    "and the picker must be able to hold the whole body. Send it without content-encoding.",
    Reason.CONVERSATION_NOT_FOUND: "No server has a conversation with this id that was begun with "
    "this API key, or it has expired.",
    Reason.BOUND_REACHED: "As many requests of this kind run and wait as may.",
    Reason.BUDGET_USED_UP: "You exceeded your current quota: the budget of this API key is used "
    "up.",
    Reason.OBJECTIVE_NOT_ALLOWED: "This API key may not use this objective.",
    Reason.NO_POOL: "This service has several pools of servers, and the request is for none of "
    "them. Check its host name.",
    Reason.REJECTED_BY_RULE: "A rule of this service rejects the request.",
    Reason.INVALID_API_KEY: "Send a valid API key: authorization: Bearer KEY.",
}
_FINAL: Final = frozenset(
    {
        Reason.BAD_REQUEST,
        Reason.BLOCKED_PATH,
        Reason.CANCELLED,
        Reason.CONTEXT_LENGTH_EXCEEDED,
        Reason.CONVERSATION_NOT_FOUND,
        Reason.INVALID_API_KEY,
        Reason.MODEL_FAILED,
        Reason.MODEL_NOT_FOUND,
        Reason.NO_POOL,
        Reason.OBJECTIVE_NOT_ALLOWED,
        Reason.POISON_REQUEST,
        Reason.REJECTED_BY_RULE,
        Reason.UNKNOWN_PATH,
        Reason.UNSUPPORTED_ENCODING,
        Reason.UPLOAD_STALLED,
    }
)
"""Reasons after which a client should not retry the same request."""
_ERROR_TYPE: Final = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    403: "permission_error",
    404: "invalid_request_error",
    408: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}

_OPENAI: Final = {
    Reason.BUDGET_USED_UP: {"type": "insufficient_quota", "code": "insufficient_quota"},
    Reason.CONTEXT_LENGTH_EXCEEDED: {"code": "context_length_exceeded", "param": "messages"},
    Reason.MODEL_NOT_FOUND: {"code": "model_not_found", "param": "model"},
}
"""The words by which OpenAI's clients know these errors."""


def destination(
    addresses: tuple[Address, ...],
    exchange_id: str,
    *,
    kind: str = "request_headers",
    removed: tuple[str, ...] = (),
    is_upload: bool = False,
    retries: int | None = None,
    client: str = "",
) -> pb.ProcessingResponse:
    """Send the request to the first of `addresses`, the others being fallbacks in order.

    `kind` is the message that this answers: the request's headers, or its body. `removed` are
    headers to remove. With `is_upload`, Envoy reports the progress of the body. `retries`, if it is
    not None, takes precedence over the number of retries in Envoy's configuration. The server is
    shown the name of the `client`, if there is one.
    """
    response = pb.ProcessingResponse.FromString(_way_to(addresses, kind, removed, retries, client))
    fields = response.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields
    fields[EXCHANGE].string_value = exchange_id
    if is_upload:
        fields[UPLOAD].bool_value = True
    return response


@lru_cache(maxsize=4096)
def _way_to(
    addresses: tuple[Address, ...],
    kind: str,
    removed: tuple[str, ...],
    retries: int | None,
    client: str,
) -> bytes:
    """The part that is equal for all exchanges, encoded: decoding it is faster than building it."""
    response = pb.ProcessingResponse()
    answer = getattr(response, kind)
    answer.SetInParent()  # a reply is needed even without an address
    mutation = answer.response.header_mutation
    mutation.remove_headers.extend(removed)
    if client:
        _set(mutation, CLIENT, client)
    if not addresses:
        mutation.remove_headers.append(DESTINATION)  # clients must not choose the server
    else:
        value = ",".join(map(str, addresses))
        _set(mutation, DESTINATION, value)
        if retries is not None:
            _set(mutation, MAX_RETRIES, str(retries))
        fields = response.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields
        fields[DESTINATION].string_value = value
    return response.SerializeToString()


def replace_body(response: pb.ProcessingResponse, body: bytes) -> None:
    """Replace the body in a reply to a message with the whole body.

    The content-length is removed: Envoy 1.40 answers 500 if it is set again.
    """
    common = response.request_body.response
    common.header_mutation.remove_headers.append("content-length")
    common.body_mutation.body = body


def replaced_part(body: bytes) -> pb.ProcessingResponse:
    """Replace a part of a body that Envoy sends without waiting; an empty one is left out."""
    response = pb.ProcessingResponse()
    mutation = response.request_body.response.body_mutation
    if body:
        mutation.body = body
    else:
        mutation.clear_body = True
    return response


def immediate_json(
    body: bytes, status: int = OK, headers: Mapping[str, str] = READABLE
) -> pb.ProcessingResponse:
    """Answer with JSON, or without a body, instead of a server."""
    response = pb.ProcessingResponse()
    immediate = response.immediate_response
    immediate.status.code = cast("http_status_pb2.StatusCode", status)
    immediate.details = "coxswain_answered"
    if body:
        immediate.body = body
        _set(immediate.headers, "content-type", "application/json")
    for name, value in headers.items():
        _set(immediate.headers, name, value)
    return response


def chunk(kind: str, body: bytes, *, is_last: bool) -> pb.ProcessingResponse:
    """Pass on a piece of a body in full-duplex mode."""
    response = pb.ProcessingResponse()
    streamed = getattr(response, kind).response.body_mutation.streamed_response
    streamed.body = body
    streamed.end_of_stream = is_last
    return response


@cache
def ask_for_body(*, is_whole: bool) -> pb.ProcessingResponse:
    """Let the headers wait in Envoy and send the body: all of it, which must fit into what
    Envoy keeps, or the first part, as much as that is, and word of trailers behind it.

    What is not repeated here would be switched off for this exchange. The message is shared and
    must not be changed.
    """
    response = pb.ProcessingResponse()
    response.request_headers.SetInParent()
    mode = response.mode_override
    mode.response_header_mode = mode.SEND
    mode.response_trailer_mode = mode.SEND
    if is_whole:
        mode.request_body_mode = mode.BUFFERED
    else:
        mode.request_body_mode = mode.BUFFERED_PARTIAL
        mode.request_trailer_mode = mode.SEND
    return response


def routing_headers(
    served: str, waited_ms: int, attempts: int, tier: int = FIRST_TIER
) -> pb.ProcessingResponse:
    """Let the answer through, with headers about its request for the client: the name of the
    endpoint, if it is known, its tier if that is not the first, the time in the queue, the number
    of attempts.

    The message may be shared and must not be changed.
    """
    unqueued = _unqueued_headers(served, attempts, tier)
    if not waited_ms:
        return unqueued
    response = pb.ProcessingResponse()
    response.CopyFrom(unqueued)
    headers = response.response_headers.response.header_mutation.set_headers
    headers[-1].header.raw_value = str(waited_ms).encode()
    return response


@lru_cache(maxsize=1024)  # there are few servers
def _unqueued_headers(served: str, attempts: int, tier: int) -> pb.ProcessingResponse:
    """`routing_headers` of a request that was not queued; the time in the queue is the last."""
    response = pb.ProcessingResponse()
    mutation = response.response_headers.response.header_mutation
    if served:
        _set(mutation, ENDPOINT, served)
    if tier != FIRST_TIER:
        _set(mutation, TIER, str(tier))
    _set(mutation, ATTEMPTS, str(attempts))
    _set(mutation, _EXPOSED, READABLE[_EXPOSED])
    _set(mutation, QUEUE_MS, "0")
    return response


_EXPOSED: Final = "access-control-expose-headers"
"""Whether a page may read the response is the server's to say."""


def extend_timeout(timeout_s: float) -> pb.ProcessingResponse:
    """Extend Envoy's timeout for the reply (at least 1 ms)."""
    response = pb.ProcessingResponse()
    response.override_message_timeout.FromMilliseconds(max(1, ceil(timeout_s * 1000)))
    return response


def status_of(reason: Reason) -> int:
    """The HTTP status of a rejection."""
    return _STATUS[reason]


def rejection(
    reason: Reason,
    retry_after_s: float,
    text: str = "",
    headers: Mapping[str, str] = NO_HEADERS,
    *,
    is_plain: bool = False,
) -> pb.ProcessingResponse:
    """Respond instead of a server, with an error in OpenAI's format, or in Ollama's if `is_plain`,
    and further `headers`."""
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
    error |= _OPENAI.get(reason, {})
    immediate.body = json.dumps({"error": error["message"] if is_plain else error}).encode()
    _set(immediate.headers, "content-type", "application/json")
    _set(immediate.headers, REASON, reason.value)
    for name, value in {**READABLE, **headers}.items():
        _set(immediate.headers, name, value)
    if reason not in _FINAL:
        _set(immediate.headers, "retry-after", str(ceil(retry_after_s)))
    return response


def with_headers(
    response: pb.ProcessingResponse, headers: Mapping[str, str]
) -> pb.ProcessingResponse:
    """A copy of the reply to response headers that sets these too."""
    more = pb.ProcessingResponse()
    more.CopyFrom(response)
    for name, value in headers.items():
        _set(more.response_headers.response.header_mutation, name, value)
    return more


def name_exchange(response: pb.ProcessingResponse, exchange_id: str) -> pb.ProcessingResponse:
    """A copy of the reply that lets Envoy report the exchange although no destination did."""
    named = pb.ProcessingResponse()
    named.CopyFrom(response)
    fields = named.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields
    fields[EXCHANGE].string_value = exchange_id
    return named


def ask_for_end(response: pb.ProcessingResponse) -> pb.ProcessingResponse:
    """A copy of the reply to response headers that lets Envoy report how the response ends."""
    marked = pb.ProcessingResponse()
    marked.CopyFrom(response)
    fields = marked.dynamic_metadata.fields[LB_NAMESPACE].struct_value.fields
    fields[UNBOUNDED].bool_value = True
    return marked


@lru_cache(maxsize=8)
def unchanged(kind: str) -> pb.ProcessingResponse:
    """Pass a part of the exchange unchanged; `kind` is the message's field name.

    The message is shared and must not be changed.
    """
    response = pb.ProcessingResponse()
    getattr(response, kind).SetInParent()
    return response


def _set(mutation: pb.HeaderMutation, key: str, value: str) -> None:
    option = mutation.set_headers.add()
    option.header.key = key
    option.header.raw_value = value.encode()
    option.append_action = option.OVERWRITE_IF_EXISTS_OR_ADD
