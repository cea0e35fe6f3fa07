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
UNAUTHORIZED = {
    "error": {
        "message": "Show an API key that is known here: authorization: Bearer KEY.",
        "type": "invalid_request_error",
        "code": "invalid-api-key",
    }
}


def local_replies(options: EnvoyOptions) -> LocalReplyConfig:
    """Only replies with a response flag are Envoy's own; the picker's refusals have none."""
    mappers = [_told(AccessLogFilter(response_flag_filter=ResponseFlagFilter()), BODY)]
    if options.client_keys:
        mappers.insert(0, _told(_is_unauthorized(), UNAUTHORIZED))
    return LocalReplyConfig(mappers=mappers)


def _told(filter_: AccessLogFilter, body: dict[str, dict[str, str]]) -> ResponseMapper:
    text = SubstitutionFormatString(json_format=Struct.from_dict(body))
    return ResponseMapper(filter=filter_, body_format_override=text)


def _is_unauthorized() -> AccessLogFilter:
    value = RuntimeUInt32(default_value=401, runtime_key="coxswain.unauthorized")
    comparison = ComparisonFilter(op=ComparisonFilterOp.EQ, value=value)
    return AccessLogFilter(status_code_filter=StatusCodeFilter(comparison=comparison))
