"""Envoy's own refusals (no server, a server lost, too long a wait) in OpenAI's shape."""

from __future__ import annotations

from envoy_data_plane.envoy.config.accesslog.v3 import AccessLogFilter, ResponseFlagFilter
from envoy_data_plane.envoy.config.core.v3 import SubstitutionFormatString
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    LocalReplyConfig,
    ResponseMapper,
)
from envoy_data_plane.google.protobuf import Struct

BODY = {
    "error": {
        "message": "%LOCAL_REPLY_BODY%",
        "type": "server_error",
        "code": "%RESPONSE_FLAGS_LONG%",
    }
}


def local_replies() -> LocalReplyConfig:
    """Only replies with a response flag are Envoy's own; the picker's refusals have none."""
    return LocalReplyConfig(
        mappers=[
            ResponseMapper(
                filter=AccessLogFilter(response_flag_filter=ResponseFlagFilter()),
                body_format_override=SubstitutionFormatString(json_format=Struct.from_dict(BODY)),
            )
        ]
    )
