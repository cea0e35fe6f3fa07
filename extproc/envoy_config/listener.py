"""The HTTP listener for clients, which does not trust their headers, paths or speed."""

from envoy_data_plane.envoy.config.core.v3 import (
    Http2ProtocolOptions,
    HttpProtocolOptions,
    TypedExtensionConfig,
)
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerCodecType,
    HttpConnectionManagerPathWithEscapedSlashesAction,
    HttpConnectionManagerServerHeaderTransformation,
)
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    HeaderMutation as EarlyHeaderMutation,
)

from extproc.envoy_config import names
from extproc.envoy_config.access_log import (
    access_lines,
    access_log_stream,
    report_interval,
    upload_watchdog_log,
)
from extproc.envoy_config.filters import ext_proc, first_filters, removed_headers, router
from extproc.envoy_config.local_replies import local_replies, local_replies_on
from extproc.envoy_config.messages import NEVER, address, extension, seconds, typed
from extproc.envoy_config.options import MIB, EnvoyOptions, HostPort
from extproc.envoy_config.routes import route_configuration, routes
from extproc.envoy_config.tracing import tracing, untouched_request_ids
from extproc.envoy_config.usage import usage_filters


def listener(options: EnvoyOptions) -> Listener:
    """The listener with its one connection manager."""
    name = "envoy.filters.network.http_connection_manager"
    manager = typed(connection_manager(options))
    return Listener(
        name="clients",
        address=address(HostPort.parse(options.envoy.listen)),
        per_connection_buffer_limit_bytes=MIB,
        filter_chains=[FilterChain(filters=[Filter(name=name, typed_config=manager)])],
    )


def steered_manager(options: EnvoyOptions) -> HttpConnectionManager:
    """The fields that a connection manager needs that has other routes, too: nearly all of them
    concern only the routes to Coxswain."""
    names_of_routes = [route.name for route in routes(options, is_shared=True)]
    return HttpConnectionManager(
        access_log=[
            *access_log_stream(options, names_of_routes),
            *upload_watchdog_log(options),
        ],
        access_log_options=report_interval(options),
        local_reply_config=local_replies_on(names_of_routes, options),
    )


def connection_manager(options: EnvoyOptions) -> HttpConnectionManager:
    """How a client's connection is read. It rejects upgrades (WebSockets): none is listed."""
    return HttpConnectionManager(
        stat_prefix=names.STAT_PREFIX,
        codec_type=HttpConnectionManagerCodecType.AUTO,
        # A queued request is silent, so silence must not end it.
        stream_idle_timeout=NEVER,
        # The path is normalised before any route matches it.
        normalize_path=True,
        merge_slashes=True,
        path_with_escaped_slashes_action=(
            HttpConnectionManagerPathWithEscapedSlashesAction.UNESCAPE_AND_FORWARD
        ),
        early_header_mutation_extensions=[_early_removals()],
        # A client may name its request, and ask by that name where it stands.
        preserve_external_request_id=True,
        request_id_extension=untouched_request_ids(),
        # A client that sends its request slower than this is no client.
        request_headers_timeout=seconds(options.envoy.request_headers_timeout_s),
        request_timeout=seconds(
            options.envoy.max_message_timeout_s + options.envoy.request_body_timeout_s
        ),
        # Nor is one that never takes the end of its answer; the server was let go before.
        stream_flush_timeout=seconds(options.envoy.connection_idle_timeout_s),
        common_http_protocol_options=HttpProtocolOptions(
            idle_timeout=seconds(options.envoy.connection_idle_timeout_s), max_headers_count=100
        ),
        http2_protocol_options=Http2ProtocolOptions(
            max_concurrent_streams=1024,
            initial_stream_window_size=256 * 1024,
            initial_connection_window_size=MIB,
            # A proxy in front sends many clients' requests over one connection: one that is
            # malformed must not cut the others off. Floods still end it.
            override_stream_error_on_invalid_http_message=True,
        ),
        use_remote_address=True,
        xff_num_trusted_hops=options.envoy.trusted_proxies,
        always_set_request_id_in_response=True,
        server_header_transformation=HttpConnectionManagerServerHeaderTransformation.OVERWRITE,
        server_name="envoy",
        access_log=[
            *access_lines(options),
            *access_log_stream(options),
            *upload_watchdog_log(options),
        ],
        access_log_options=report_interval(options),
        tracing=tracing(options),
        local_reply_config=local_replies(options),
        route_config=route_configuration(options),
        http_filters=[
            *first_filters(options),
            *usage_filters(options),
            *ext_proc(options),
            router(),
        ],
    )


def _early_removals() -> TypedExtensionConfig:
    """Remove control headers before any filter reads them."""
    return extension(
        "envoy.http.early_header_mutation.header_mutation",
        EarlyHeaderMutation(mutations=removed_headers()),
    )
