"""Envoy's own rejections (no server, server lost, timeout) in OpenAI's error format."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLogFilter,
    ComparisonFilter,
    ComparisonFilterOp,
    ResponseFlagFilter,
    StatusCodeFilter,
)
from envoy_data_plane.envoy.config.core.v3 import (
    HeaderValue,
    HeaderValueOption,
    RuntimeUInt32,
    SubstitutionFormatString,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.google.protobuf import Struct

from extproc import header_names
from extproc.envoy_config import names
from extproc.envoy_config.access_log import all_of, matches
from extproc.envoy_config.broken_framing import IS_MALFORMED
from extproc.envoy_config.messages import set_header
from extproc.envoy_config.options import EnvoyOptions

_INVALID = "invalid_request_error"


class _Error(NamedTuple):
    """An error as OpenAI's API has it. Its code is the reason in the header, too."""

    message: str
    code: str
    type: str = "server_error"


ENVOYS_OWN = _Error("%LOCAL_REPLY_BODY%", "%RESPONSE_FLAGS_LONG%")
"""What Envoy says itself; it has no reason."""
PICKER_LOST = _Error(
    "The endpoint picker was lost while it handled this request; send it again.",
    names.PICKER_LOST,
)
PICKER_AWAITED = _Error(
    "No endpoint picker has said yet which servers there are; send the request again.",
    names.PICKER_LOST,
)
QUEUE_LOST = _Error(
    "The endpoint picker did not answer: it was lost, or it has too many connections. Send the "
    "request again.",
    names.PICKER_LOST,
)
BATCHES_LOST = _Error(
    "The process that serves files and batches did not answer; send the request again.",
    names.BATCHES_LOST,
)
SERVER_LOST = _Error(
    "The server closed the connection before it answered this request. The request may have "
    "crashed it, so it was not sent to another server.",
    names.SERVER_LOST,
)
CROWDED = _Error(
    "The request's headers are too many or too large.", names.TOO_MANY_HEADERS, _INVALID
)
MALFORMED = _Error(
    "This is not a well-formed HTTP/1.1 request; the connection is closed.",
    names.MALFORMED_HTTP,
    _INVALID,
)
UNSUPPORTED = _Error(
    "Upgrades (WebSockets), CONNECT and `*` are not supported: send an ordinary request for a "
    "path.",
    names.UNSUPPORTED_HTTP,
    _INVALID,
)
NO_CLUSTER = "NC"
"""The flag of a request for servers of which Envoy has not heard since it started."""
NOT_SENT = ("UF", "UH")
"""Flags of a request that no server has seen: no connection, or none that Envoy may choose."""
TOO_LARGE = 431
_READABLE = [set_header(name, value) for name, value in header_names.READABLE.items()]
"""Each local reply gets them, also those of routes, and of the picker, which has set them itself.
"""
LOST = 'response.code_details.startsWith("ext_proc_error_gRPC")'
"""Failing open was no choice: in full duplex the body had gone to the picker, or it checks keys."""
LATE = 'response.code_details.startsWith("ext_proc_error_per-message_timeout")'

BAD_GATEWAY = 502
DIED = (
    'response.code_details.startsWith("upstream_reset_before_response_started") && '
    '(response.code_details.contains("connection_termination") || '
    'response.code_details.contains("remote_reset") || '
    'response.code_details.contains("protocol_error"))'
)
"""The server had the request: that there was no connection is another matter."""

NO_PATH = 'response.code_details in ["upgrade_failed", "absolute_path_rejected", "route_not_found"]'
"""All that has a path has a route, since the last one takes every path; CONNECT has none."""

TOO_MANY_HEADERS = 'response.code_details.contains("header_mutation_result_exceeds_limit")'
"""The client's headers and the picker's together are more than the listener allows."""


def local_replies(options: EnvoyOptions) -> LocalReplyConfig:
    """Replies with a response flag are Envoy's own; the picker's rejections have none.

    Nor have the two that Envoy answers with 500 and without a text: only its details say
    them apart. The picker itself never answers 500.
    """
    return LocalReplyConfig(mappers=[*_before_routes(), *_on_routes(options)])


def local_replies_on(route_names: Sequence[str], options: EnvoyOptions) -> LocalReplyConfig:
    """The same only for these routes, except for requests that are rejected before routing."""
    names_them = matches(f"xds.route_name in {list(route_names)}")
    mappers = [
        replace(mapper, filter=all_of(names_them, mapper.filter))
        for mapper in _on_routes(options)
        if mapper.filter is not None
    ]
    return LocalReplyConfig(mappers=[*_before_routes(), *mappers])


def _before_routes() -> list[ResponseMapper]:
    return [
        _mapper(_has_status(TOO_LARGE), CROWDED),
        # Marked for the filter that must let it by.
        _mapper(matches(IS_MALFORMED), MALFORMED),
    ]


def _on_routes(options: EnvoyOptions) -> list[ResponseMapper]:
    mappers = [
        *_beside_servers(options),
        _mapper(matches(NO_PATH), UNSUPPORTED),
        _mapper(matches(DIED), SERVER_LOST, status=BAD_GATEWAY),
        _mapper(_has_flag(NO_CLUSTER), PICKER_AWAITED, may_return=True),
        _mapper(_has_flag(*NOT_SENT), ENVOYS_OWN, may_return=True),
        _mapper(_has_flag(), ENVOYS_OWN),
        _mapper(matches(TOO_MANY_HEADERS), CROWDED, status=TOO_LARGE),
        _mapper(matches(LOST), PICKER_LOST, status=503, may_return=True),
    ]
    if options.checks_clients:
        mappers.append(_mapper(matches(LATE), PICKER_LOST, status=503, may_return=True))
    return [
        *mappers,
        ResponseMapper(filter=_has_status(0, at_least=True), headers_to_add=_READABLE),
    ]


def _beside_servers(options: EnvoyOptions) -> Iterator[ResponseMapper]:
    """On the routes that lead to no server: what serves them bounds its connections, and no request
    brings it down."""
    if options.status is not None:
        yield _door(names.QUEUE_ROUTE, QUEUE_LOST)
    if options.envoy.batches is not None:
        yield _door(names.BATCHES_ROUTE, BATCHES_LOST)


def _door(route: str, error: _Error) -> ResponseMapper:
    is_there = matches(f'xds.route_name == "{route}"')
    return _mapper(all_of(is_there, _has_flag()), error, status=503, may_return=True)


def _mapper(
    filter_: AccessLogFilter,
    error: _Error,
    *,
    status: int | None = None,
    may_return: bool = False,
) -> ResponseMapper:
    """The reply to what the filter finds; with `may_return` the client may soon send it again."""
    headers = {} if error is ENVOYS_OWN else {header_names.REASON: error.code}
    if may_return:
        headers["retry-after"] = "1"
    content = {"message": error.message, "type": error.type, "code": error.code}
    body = SubstitutionFormatString(json_format=Struct.from_dict({"error": content}))
    return ResponseMapper(
        filter=filter_,
        status_code=status,
        body_format_override=body,
        headers_to_add=[
            *(
                HeaderValueOption(header=HeaderValue(key=key, value=value))
                for key, value in headers.items()
            ),
            *_READABLE,
        ],
    )


def _has_flag(*flags: str) -> AccessLogFilter:
    """One of these response flags, or any."""
    return AccessLogFilter(response_flag_filter=ResponseFlagFilter(flags=list(flags)))


def _has_status(status: int, *, at_least: bool = False) -> AccessLogFilter:
    value = RuntimeUInt32(default_value=status, runtime_key=f"coxswain.status_{status}")
    op = ComparisonFilterOp.GE if at_least else ComparisonFilterOp.EQ
    comparison = ComparisonFilter(op=op, value=value)
    return AccessLogFilter(status_code_filter=StatusCodeFilter(comparison=comparison))
