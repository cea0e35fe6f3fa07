"""The filter that sends responses to the picker, which reads their token counts at the end.

It is ext_proc again, in observability mode: Envoy sends each part of a response body as it passes
it on, and waits for nothing. A stream of it is opened by the first part of a body, names the
exchange that the picker wrote into the request's metadata, and is ended by the picker after the
last part. Without the picker, or if it breaks the stream off, the response goes on.

It stands before ext_proc in the list, so that responses reach it after ext_proc.
"""

from datetime import timedelta
from typing import Final

from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter

from extproc import header_names
from extproc.envoy_config import names
from extproc.envoy_config.messages import grpc_service, seconds, typed
from extproc.envoy_config.options import EnvoyOptions

CLOSE_AFTER: Final = timedelta(seconds=1)
"""How long Envoy keeps a stream whose response ended without its last part: its client left. The
parts that are on their way arrive meanwhile."""
EXCHANGE: Final = (
    f"exchange=%DYNAMIC_METADATA({header_names.LB_NAMESPACE}:{header_names.EXCHANGE})%"
)
"""Envoy would leave an empty header out, and the picker take the stream for one that asks where a
request goes: rejections, and responses past the picker, have no exchange."""


def usage_filters(options: EnvoyOptions) -> list[HttpFilter]:
    """The filter, or none where usage is not counted. It is on for the route to the servers."""
    if not options.has_usage_filter:
        return []
    skip = ProcessingModeHeaderSendMode.SKIP
    processor = ExternalProcessor(
        grpc_service=grpc_service(names.PICKER_CLUSTER, metadata=[(header_names.USAGE, EXCHANGE)]),
        stat_prefix=f"{names.STAT_PREFIX}_usage",
        observability_mode=True,
        deferred_close_timeout=CLOSE_AFTER,
        failure_mode_allow=True,
        message_timeout=seconds(options.message_timeout_s),
        processing_mode=ProcessingMode(
            request_header_mode=skip,
            response_header_mode=skip,
            request_body_mode=ProcessingModeBodySendMode.NONE,
            response_body_mode=ProcessingModeBodySendMode.STREAMED,
            request_trailer_mode=skip,
            response_trailer_mode=skip,
        ),
    )
    return [HttpFilter(name=names.USAGE_FILTER, disabled=True, typed_config=typed(processor))]
