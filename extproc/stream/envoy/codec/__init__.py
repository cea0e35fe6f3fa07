"""Translates between ext_proc messages and values; knows all modes and status codes."""

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
from extproc.stream.envoy.codec.names import FULL_DUPLEX, PROCESS, READABLE_MODES, STREAMED
from extproc.stream.envoy.codec.rate_limits import over_limit, rate_limit_headers
from extproc.stream.envoy.codec.replies import (
    ask_for_body,
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
