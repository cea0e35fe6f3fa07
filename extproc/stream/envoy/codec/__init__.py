"""Translates between ext_proc messages and values; knows all modes and status codes."""

from typing import Final

from extproc.stream.envoy.codec.headers import (
    NO_HEAD,
    BadRequestError,
    RequestHead,
    ResponseHead,
    read_arrival,
    read_request_head,
    read_response_head,
    read_trace_parent,
)
from extproc.stream.envoy.codec.rate_limits import (
    limit_text,
    over_limit,
    rate_limit_headers,
    reason_of,
)
from extproc.stream.envoy.codec.replies import (
    ask_for_body,
    ask_for_end,
    chunk,
    destination,
    extend_timeout,
    immediate_json,
    name_exchange,
    rejection,
    replace_body,
    replaced_part,
    routing_headers,
    status_of,
    unchanged,
    with_headers,
)

PROCESS: Final = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
"""The path of the call."""
STREAMED: Final = 1
"""`ProcessingMode.BodySendMode`: each chunk waits in Envoy for its answer."""
FULL_DUPLEX: Final = 4
"""`ProcessingMode.BodySendMode`: chunks flow both ways, and nobody waits for an answer."""
READABLE_MODES: Final = frozenset({0, 2, 3, FULL_DUPLEX})
"""Not streamed chunk by chunk: then the destination would be due before the first chunk, unless
Envoy sends the body without waiting."""
