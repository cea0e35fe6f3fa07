"""The access logs: a line on standard output, and reports to the picker."""

from collections.abc import Sequence
from datetime import timedelta

from envoy_data_plane.envoy.config.accesslog.v3 import (
    AccessLog,
    AccessLogFilter,
    AndFilter,
    ComparisonFilter,
    ComparisonFilterOp,
    ExtensionFilter,
    LogTypeFilter,
    MetadataFilter,
    OrFilter,
    ResponseFlagFilter,
    StatusCodeFilter,
)
from envoy_data_plane.envoy.config.core.v3 import (
    ApiVersion,
    RuntimeUInt32,
    SubstitutionFormatString,
)
from envoy_data_plane.envoy.data.accesslog.v3 import AccessLogType
from envoy_data_plane.envoy.extensions.access_loggers.filters.cel.v3 import ExpressionFilter
from envoy_data_plane.envoy.extensions.access_loggers.grpc.v3 import (
    CommonGrpcAccessLogConfig,
    HttpGrpcAccessLogConfig,
)
from envoy_data_plane.envoy.extensions.access_loggers.stream.v3 import StdoutAccessLog
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManagerHcmAccessLogOptions,
)
from envoy_data_plane.envoy.type.matcher.v3 import (
    ValueMatcher,
    ValueMatcherNullMatch,
)
from envoy_data_plane.google.protobuf import Struct

from extproc import header_names
from extproc.envoy_config import names
from extproc.envoy_config.messages import grpc_service, has_metadata, seconds, typed
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
    "reason": f"%RESP({header_names.REASON.upper()})%",
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
    if not options.envoy.access_log:
        return []
    line = SubstitutionFormatString(json_format=Struct.from_dict(LINE), omit_empty_values=True)
    return [
        AccessLog(
            name="envoy.access_loggers.stdout",
            filter=_is_over(),
            typed_config=typed(StdoutAccessLog(log_format=line)),
        )
    ]


def access_log_stream(
    options: EnvoyOptions, route_names: Sequence[str] | None = None
) -> list[AccessLog]:
    """One message to the picker for each exchange that ended badly or bypassed it, and for each
    response whose length its headers did not say, such as an event stream; none for the others.

    The end of an ext_proc stream looks the same for a finished response, a client that left and a
    server that died. This report distinguishes them. It is sent, unbuffered and on the connection
    of that stream, just before the stream ends. No flag is no proof of a good end: Envoy sets none
    if a client resets its stream without an error. So the good end is reported as well.
    With `route_names`, only those of these routes.
    """
    if not options.envoy.access_log_stream:
        return []
    reported = [
        AccessLogFilter(response_flag_filter=ResponseFlagFilter()),
        _has_metadata(header_names.UNBOUNDED),
    ]
    if options.has_discovery:
        reported.append(_has_bypassed())
    any_of = AccessLogFilter(or_filter=OrFilter(filters=reported))
    ours = [] if route_names is None else [matches(f"xds.route_name in {list(route_names)}")]
    return [_to_picker("coxswain-ends", all_of(_is_over(), *ours, any_of))]


def _has_bypassed() -> AccessLogFilter:
    """Requests that Envoy sent to a llama-server without the picker: the balancing policy wrote
    which server got it, and the picker wrote no exchange. Rejections and other routes have no
    server, and what the picker decided has an exchange: neither costs a message.
    """
    return all_of(
        _has_metadata(header_names.SERVED), _has_metadata(header_names.EXCHANGE, is_present=False)
    )


def upload_watchdog_log(options: EnvoyOptions) -> list[AccessLog]:
    """A regular message to the picker about each request that has a slot, an incomplete body, and
    no response yet.

    It has the number of bytes that arrived, and whether these are all. The picker cannot know it
    otherwise: most of a long body goes to the server directly, or stays at a stopped client.
    """
    if report_interval(options) is None:
        return []
    nothing = ComparisonFilter(
        op=ComparisonFilterOp.EQ,
        value=RuntimeUInt32(default_value=0, runtime_key="coxswain.no_status"),
    )
    goes_on = all_of(
        AccessLogFilter(log_type_filter=LogTypeFilter(types=[AccessLogType.DownstreamPeriodic])),
        AccessLogFilter(status_code_filter=StatusCodeFilter(comparison=nothing)),
        _has_metadata(header_names.UPLOAD),
    )
    return [_to_picker("coxswain-uploads", goes_on)]


def report_interval(options: EnvoyOptions) -> HttpConnectionManagerHcmAccessLogOptions | None:
    """How often `upload_watchdog_log` are sent; None if no setting needs them."""
    interval_s = options.envoy.upload_report_interval_s
    if interval_s is None:
        return None
    interval = timedelta(seconds=interval_s)
    return HttpConnectionManagerHcmAccessLogOptions(access_log_flush_interval=interval)


def _to_picker(log_name: str, filter_: AccessLogFilter) -> AccessLog:
    common = CommonGrpcAccessLogConfig(
        log_name=log_name,
        transport_api_version=ApiVersion.V3,
        grpc_service=grpc_service(names.PICKER_CLUSTER),
        buffer_size_bytes=0,
        buffer_flush_interval=seconds(1),
    )
    return AccessLog(
        name="envoy.access_loggers.http_grpc",
        filter=filter_,
        typed_config=typed(HttpGrpcAccessLogConfig(common_config=common)),
    )


def _is_over() -> AccessLogFilter:
    """Excludes the reports about running exchanges."""
    return AccessLogFilter(
        log_type_filter=LogTypeFilter(types=[AccessLogType.DownstreamPeriodic], exclude=True)
    )


def _has_metadata(key: str, *, is_present: bool = True) -> AccessLogFilter:
    """Whether the balancing's metadata has this key, or with `is_present` false, that it does not:
    this filter ignores the matcher's `invert`, so a value of the key must be null, and none is.
    """
    matcher = has_metadata(key)
    if not is_present:
        matcher.value = ValueMatcher(null_match=ValueMatcherNullMatch())
    return AccessLogFilter(
        metadata_filter=MetadataFilter(matcher=matcher, match_if_key_not_found=not is_present)
    )


def matches(expression: str) -> AccessLogFilter:
    """Whether an expression of CEL holds."""
    matcher = ExtensionFilter(
        name="envoy.access_loggers.extension_filters.cel",
        typed_config=typed(ExpressionFilter(expression=expression)),
    )
    return AccessLogFilter(extension_filter=matcher)


def all_of(*filters: AccessLogFilter) -> AccessLogFilter:
    """Whether each of them, two or more, lets by."""
    return AccessLogFilter(and_filter=AndFilter(filters=list(filters)))
