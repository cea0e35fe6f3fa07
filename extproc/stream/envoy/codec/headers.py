"""Reads the headers and attributes in Envoy's messages."""

import re
import time
from calendar import timegm
from collections.abc import Callable, Iterable, Mapping
from email.utils import parsedate_tz
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import parse_qs, parse_qsl

from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError

from extproc.core.address import Address, AddressError
from extproc.core.request import CLIENT, client_of
from extproc.header_names import (
    ADAPTER,
    ARRIVED_AT,
    CONTROL_HEADERS,
    CONVERSATION,
    CREDENTIALS,
    FAIRNESS_ID,
    FILTER_ATTRIBUTES,
    LB_NAMESPACE,
    MODEL,
    OBJECTIVE,
    QUEUE_TIMEOUT,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    SERVED,
    SESSION,
    TRACE_PARENT,
    TTFT,
)
from extproc.pb import base_pb2
from extproc.pb import external_processor_pb2 as pb
from extproc.security.known_keys import UNKNOWN as NO_KEY
from extproc.security.known_keys import KnownKeys
from extproc.stream.request.shared_text import shared_text

MAX_NAME_CHARS: Final = 256
MAX_ID_CHARS: Final = 200
MAX_PATH_CHARS: Final = 1000
"""Longer values are cut: they are kept during the exchange, and go into logs and traces."""
_MAX_ATTEMPTS: Final = 100


class RequestHead(NamedTuple):
    """What the request headers say to us, the path without its query.

    Method and path are empty where a gateway leaves out all that HTTP/2 writes with a colon.
    Times are None when not asked for. `tenant` is whose key it came with: the client's name where
    keys are checked, else made from the API key by a hash that only this process knows; empty
    without a key. `fairness_id` is what the client says. `model` is what a gateway
    read in the body, `queried_model` the one in the query, which with `may_load` a router may load.
    `has_body` says that a body follows, `has_json` that it may be JSON, `form` the content type of
    a form, `encoding` how it is compressed, in lower case, `body_bytes` how long it will be, if
    known. `controls` are the headers that are for us alone. `key_digest` is that of
    the client's key, where keys are checked. `conversation` is the id under which the server is to
    keep the answer, `queried_conversation` the one in the query; both are empty without one.
    """

    method: str
    path: str
    id: str
    tenant: str = ""
    session_id: str | None = None
    model: str | None = None
    trace_parent: str = ""
    has_body: bool = False
    has_json: bool = False
    body_bytes: int | None = None
    queue_timeout_s: float | None = None
    ttft_s: float | None = None
    objective: str | None = None
    fairness_id: str = ""
    adapter: str | None = None
    controls: tuple[str, ...] = ()
    key_digest: str = ""
    form: str = ""
    encoding: str = ""
    queried_model: str | None = None
    may_load: bool = True
    conversation: str = ""
    queried_conversation: str = ""

    @property
    def client(self) -> str:
        """The name of the client whose key was checked; empty without one."""
        return client_of(self.tenant)

    def of_client(self, name: str) -> "RequestHead":
        """The same request with a key of this client."""
        return self._replace(tenant=f"{CLIENT}{name}")


NO_HEAD: Final = RequestHead(method="", path="", id="")
"""Before the headers have come."""


class BadRequestError(ValueError):
    """An invalid request; `str(error)` is for the client, `head` is the part that could be read."""

    def __init__(self, message: str, head: RequestHead) -> None:
        super().__init__(message)
        self.head = head


class ResponseHead(NamedTuple):
    """The content of the response headers and of Envoy's attributes.

    `served` is the host that answered, None when Envoy itself replied. `is_stream` says
    a stream of events or lines, whose server works on after these headers. `body_bytes` is the
    length of its body, -1 if it did not name it; `has_body` says that one follows. `retry_after_s`
    is after how many seconds another request may come, if it says that. `is_json` says that its
    body is JSON.
    """

    status: int
    is_stream: bool
    served: Address | None
    attempts: int
    code_details: str
    body_bytes: int = -1
    has_body: bool = True
    retry_after_s: float | None = None
    is_json: bool = False

    @property
    def is_local_reply(self) -> bool:
        return self.code_details not in ("", "via_upstream")

    @property
    def is_unbounded(self) -> bool:
        """Whether its server may work on after these headers, for as long as it likes.

        A server that names the length has all of it.
        """
        return self.has_body and self.body_bytes < 0 and not self.is_local_reply


def read_request_head(message: pb.HttpHeaders, keys: KnownKeys | None = None) -> RequestHead:
    """Read the request headers; raises `BadRequestError` for an invalid head. With `keys`, the
    client is whose key it shows, and the key is for us alone."""
    found = _pick_out(message.headers, REQUEST_HEADERS)
    if not (":path" in found or ":method" in found):
        found = _pick_out(_in_lower_case(message.headers), REQUEST_HEADERS)
    get = found.get
    length = get("content-length", "")
    has_body = not message.end_of_stream
    key = NO_KEY if keys is None else keys.find(get(CREDENTIALS[0], ""), get(CREDENTIALS[1], ""))
    path, _, query = get(":path", "").partition("?")
    content_type = get("content-type", "")
    kind = content_type.lower()
    encoding = get("content-encoding", "").strip().lower()
    head = RequestHead(
        shared_text(get(":method", "")),
        shared_text(path[:MAX_PATH_CHARS]),
        get("x-request-id", "")[:MAX_ID_CHARS],
        _tenant(found) if keys is None else f"{CLIENT}{key.client}" if key.client else "",
        _name(get(SESSION)),
        _name(get(MODEL)),
        get(TRACE_PARENT, "")[:MAX_ID_CHARS],
        has_body,
        has_body and not kind.startswith(_NOT_JSON),
        int(length) if _is_count(length) else None,
        key_digest=key.digest,
    )
    if kind.startswith(_FORM) or encoding not in _PLAIN:
        is_form = has_body and kind.startswith(_FORM)
        head = head._replace(
            form=content_type if is_form else "",
            encoding=encoding if has_body and encoding not in _PLAIN else "",
        )
    if "model=" in query:
        head = _with_query(head, query)
    if "conv_id=" in query:
        head = head._replace(queried_conversation=_queried_conversation(query))
    if not head.path and ":method" in found:
        raise BadRequestError("The request has no path.", head)
    if not CONTROL_HEADERS.isdisjoint(found):
        head = _controlled(head, found)
    if CONVERSATION in found:
        head = head._replace(conversation=found[CONVERSATION])
        if sum(header.key == CONVERSATION for header in message.headers.headers) > 1:
            raise BadRequestError(f"{CONVERSATION} was sent more than once.", head)
    if keys is not None:
        shown = tuple(filter(found.__contains__, CREDENTIALS))
        head = head._replace(controls=(*head.controls, *shown))
    return head


def _with_query(head: RequestHead, query: str) -> RequestHead:
    """Add what the query says about a model, as routers read it."""
    try:
        values = parse_qs(query[:MAX_QUERY_CHARS], max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        return head
    autoload = values.get("autoload", [""])[0]
    return head._replace(
        queried_model=_name(values.get("model", [""])[0]), may_load=autoload in _MAY_LOAD
    )


def _queried_conversation(query: str) -> str:
    """The id in the query; empty if a server might read another one there."""
    if len(query) > MAX_QUERY_CHARS or _ODD_ESCAPE.search(query) is not None:
        return ""
    try:
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        return ""
    found = [value for key, value in fields if key == "conv_id"]
    return found[0] if len(found) == 1 else ""


def _controlled(head: RequestHead, found: Mapping[str, str]) -> RequestHead:
    """Add the values of the control headers; most requests have none."""
    get = found.get
    wait_ms = get(QUEUE_TIMEOUT)
    if wait_ms is not None and not _is_count(wait_ms):
        problem = f"{QUEUE_TIMEOUT} must be a whole number of milliseconds, 0 or more."
        raise BadRequestError(problem, head)
    ttft = get(TTFT[0]) or get(TTFT[1]) or ""
    return head._replace(
        queue_timeout_s=None if wait_ms is None else int(wait_ms) / 1000,
        ttft_s=int(ttft) / 1000 if _is_count(ttft) else None,
        objective=_name(get(OBJECTIVE[0]) or get(OBJECTIVE[1])),
        fairness_id=_name(get(FAIRNESS_ID[0]) or get(FAIRNESS_ID[1])) or "",
        adapter=_name(get(ADAPTER)),
        controls=tuple(filter(CONTROL_HEADERS.__contains__, found)),
    )


_ARRIVED_AT: Final = frozenset({ARRIVED_AT})
_TIME: Final = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_NOT_JSON: Final = ("multipart/", "audio/", "application/octet-stream")
"""With any other type the body may be JSON: llama-server ignores the content type."""
_FORM: Final = "multipart/form-data"
_PLAIN: Final = ("", "identity")
"""Encodings that do not change the body."""
_MAY_LOAD: Final = ("", "1", "true")
"""The values of the query's `autoload` with which a router may load the model."""
MAX_QUERY_CHARS: Final = 4096
MAX_QUERY_FIELDS: Final = 100
_ODD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
"""llama-server reads `%u0041`, too."""


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


def read_arrival(request: pb.ProcessingRequest) -> float | None:
    """When the request arrived at Envoy, in seconds since 1970 by Envoy's clock; None if that is
    not said."""
    text = _pick_out(request.request_headers.headers, _ARRIVED_AT).get(ARRIVED_AT, "")
    return float(text) if _TIME.fullmatch(text) else None


def read_response_head(
    request: pb.ProcessingRequest, unix_time: Callable[[], float] = time.time
) -> ResponseHead:
    """Read status, type and the serving host; missing or invalid values are left out. `unix_time`
    is asked if `Retry-After` has a date."""
    found = _pick_out(request.response_headers.headers, RESPONSE_HEADERS)
    status, length = found.get(":status", ""), found.get("content-length", "")
    wait, content_type = found.get("retry-after", ""), found.get("content-type", "")
    attributes = request.attributes.get(FILTER_ATTRIBUTES) if request.attributes else None
    route = _UNTOLD if attributes is None else _route(attributes)
    served = route.served
    if served is None and LB_NAMESPACE in request.metadata_context.filter_metadata:
        fields = request.metadata_context.filter_metadata[LB_NAMESPACE].fields
        served = _address(fields[SERVED].string_value) if SERVED in fields else None
    return ResponseHead(
        int(status) if len(status) == 3 and status.isascii() and status.isdigit() else 0,
        content_type.startswith(STREAM_TYPES),
        served,
        route.attempts,
        route.code_details,
        int(length) if _is_count(length) else -1,
        not request.response_headers.end_of_stream,
        _wait_s(wait, unix_time) if wait else None,
        content_type.startswith("application/json"),
    )


_DECIMAL: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_MAX_DATE_CHARS: Final = 64


def _wait_s(text: str, unix_time: Callable[[], float]) -> float | None:
    """The seconds of a `Retry-After`, which are written as a number or as a date (RFC 9110, section
    10.2.3), none for one that has passed; some providers write decimals. None for anything else."""
    if _DECIMAL.fullmatch(text):
        return float(text)
    if len(text) > _MAX_DATE_CHARS or not text.isascii():
        return None
    try:
        date = parsedate_tz(text)
        return None if date is None else max(0.0, timegm(date[:9]) - (date[9] or 0) - unix_time())
    except (ValueError, OverflowError):  # a day or a year that does not exist
        return None


class _Route(NamedTuple):
    """Envoy's attributes about a response."""

    served: Address | None = None
    attempts: int = 1
    code_details: str = ""


_UNTOLD: Final = _Route()
STREAM_TYPES: Final = ("text/event-stream", "application/x-ndjson")
"""The second one is that of Ollama's own API."""


@lru_cache(maxsize=16_384)  # the same few servers, again and again
def _route(attributes: bytes) -> _Route:
    """Read an encoded `Struct`; cached, because decoding is slower than a lookup."""
    try:
        fields = struct_pb2.Struct.FromString(attributes).fields
    except DecodeError:
        return _UNTOLD
    return _Route(
        served=_address(fields[_ADDRESS].string_value) if _ADDRESS in fields else None,
        attempts=_attempts(fields[_ATTEMPTS].number_value) if _ATTEMPTS in fields else 1,
        code_details=fields[_DETAILS].string_value if _DETAILS in fields else "",
    )


_ADDRESS: Final = "upstream.address"
_ATTEMPTS: Final = "upstream.request_attempt_count"
_DETAILS: Final = "response.code_details"


def _pick_out(headers: base_pb2.HeaderMap, wanted: frozenset[str]) -> dict[str, str]:
    """The first value of each wanted header; invalid bytes become replacement characters."""
    found: dict[str, str] = {}
    for header in headers.headers:
        key = header.key
        if key in wanted and key not in found:
            found[key] = header.raw_value.decode("utf-8", "replace") or header.value
    return found


def _in_lower_case(headers: base_pb2.HeaderMap) -> base_pb2.HeaderMap:
    """The same with lower-case keys: a gateway that omits `:path` may write `Content-Type`."""
    lowered = base_pb2.HeaderMap()
    lowered.CopyFrom(headers)
    for header in lowered.headers:
        header.key = header.key.lower()
    return lowered


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _attempts(number: float) -> int:
    """The number of Envoy's attempts; an invalid number counts as one."""
    return int(number) if 1 <= number <= _MAX_ATTEMPTS else 1


@lru_cache(maxsize=16_384)
def _address(text: str) -> Address | None:
    try:
        return Address.parse(text) if text else None
    except AddressError:
        return None
