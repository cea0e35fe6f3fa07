"""Envoy's own refusals (no server, a server lost, too long a wait) in OpenAI's shape."""

from __future__ import annotations

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLogFilter,
    ComparisonFilter,
    ComparisonFilterOp,
    ResponseFlagFilter,
    StatusCodeFilter,
)
from envoy_data_plane.envoy.config.core.v3 import RuntimeUInt32, SubstitutionFormatString
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.google.protobuf import Struct

from extproc.envoy_config.options import EnvoyOptions

BODY = {
    "error": {
        "message": "%LOCAL_REPLY_BODY%",
        "type": "server_error",
        "code": "%RESPONSE_FLAGS_LONG%",
    }
}
UNSTEERED = {
    "error": {
        "message": "The endpoint picker did not answer, or the request has no room for its answer.",
        "type": "server_error",
        "code": "picker-failed",
    }
}
UNAUTHORIZED = {
    "error": {
        "message": "Show an API key that is known here: authorization: Bearer KEY.",
        "type": "invalid_request_error",
        "code": "invalid-api-key",
    }
}


def local_replies(options: EnvoyOptions) -> LocalReplyConfig:
    """Replies with a response flag are Envoy's own; the picker's refusals have none.

    Nor has the 500 that Envoy answers, without a word, when it can do nothing but fail closed:
    the picker was lost in the middle of a body, or a request has as many headers as are allowed.
    The picker itself never answers 500.
    """
    mappers = [
        _told(AccessLogFilter(response_flag_filter=ResponseFlagFilter()), BODY),
        _told(_has_status(500), UNSTEERED),
    ]
    if options.client_keys:
        mappers.insert(0, _told(_has_status(401), UNAUTHORIZED))
    return LocalReplyConfig(mappers=mappers)


def _told(filter_: AccessLogFilter, body: dict[str, dict[str, str]]) -> ResponseMapper:
    text = SubstitutionFormatString(json_format=Struct.from_dict(body))
    return ResponseMapper(filter=filter_, body_format_override=text)


def _has_status(status: int) -> AccessLogFilter:
    value = RuntimeUInt32(default_value=status, runtime_key=f"coxswain.status_{status}")
    comparison = ComparisonFilter(op=ComparisonFilterOp.EQ, value=value)
    return AccessLogFilter(status_code_filter=StatusCodeFilter(comparison=comparison))
