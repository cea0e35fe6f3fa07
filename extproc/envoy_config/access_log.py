"""Who is told how an exchange ended: a line on standard output, and the picker."""

from __future__ import annotations

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLog,
    AccessLogFilter,
    ResponseFlagFilter,
)
from envoy_data_plane.envoy.config.core.v3 import ApiVersion, SubstitutionFormatString
from envoy_data_plane.envoy.extensions.access_loggers.grpc.v3 import (
    CommonGrpcAccessLogConfig,
    HttpGrpcAccessLogConfig,
)
from envoy_data_plane.envoy.extensions.access_loggers.stream.v3 import StdoutAccessLog
from envoy_data_plane.google.protobuf import Struct

from extproc.envoy_config import names
from extproc.envoy_config.messages import grpc_service, seconds, typed
from extproc.envoy_config.options import EnvoyOptions

LINE = {
    "time": "%START_TIME%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "trace_id": "%TRACE_ID%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "method": "%REQ(:METHOD)%",
    "path": "%PATH(NQ)%",  # a query may hold a key
    "protocol": "%PROTOCOL%",
    "status": "%RESPONSE_CODE%",
    "reason": f"%RESP({names.REASON.upper()})%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "route": "%ROUTE_NAME%",
    "endpoint": "%UPSTREAM_HOST%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "first_byte_ms": "%RESPONSE_DURATION%",
    "total_ms": "%DURATION%",
    "bytes_in": "%BYTES_RECEIVED%",
    "bytes_out": "%BYTES_SENT%",
}
"""One JSON line for each exchange. No headers that may hold secrets, no query, no bodies."""


def access_lines(options: EnvoyOptions) -> list[AccessLog]:
    """One line on standard output for each exchange, where the options want it."""
    if not options.access_log:
        return []
    line = SubstitutionFormatString(json_format=Struct.from_dict(LINE), omit_empty_values=True)
    return [
        AccessLog(
            name="envoy.access_loggers.stdout",
            typed_config=typed(StdoutAccessLog(log_format=line)),
        )
    ]


def end_reports(options: EnvoyOptions) -> list[AccessLog]:
    """One message to the picker for each exchange that ended badly, none for the others.

    The end of an ext_proc stream does not tell a finished answer from a client that left or
    a server that died. This report does, and it goes out, unbuffered and on the connection
    of that stream, just before the stream's end.
    """
    if not options.end_reports:
        return []
    common = CommonGrpcAccessLogConfig(
        log_name="coxswain-ends",
        transport_api_version=ApiVersion.V3,
        grpc_service=grpc_service(options.picker_cluster),
        buffer_size_bytes=0,
        buffer_flush_interval=seconds(1),
    )
    return [
        AccessLog(
            name="envoy.access_loggers.http_grpc",
            filter=AccessLogFilter(response_flag_filter=ResponseFlagFilter()),
            typed_config=typed(HttpGrpcAccessLogConfig(common_config=common)),
        )
    ]
