"""Envoy's own spans for an OpenTelemetry collector; off by default."""

from envoy_data_plane.envoy.config.trace.v3 import OpenTelemetryConfig, TracingHttp
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManagerTracing,
    RequestIdExtension,
)
from envoy_data_plane.envoy.extensions.request_id.uuid.v3 import UuidRequestIdConfig
from envoy_data_plane.envoy.type.v3 import Percent

from extproc.envoy_config.messages import grpc_service, typed
from extproc.envoy_config.options import EnvoyOptions

COLLECTOR_CLUSTER = "otel_collector"


def tracing(options: EnvoyOptions) -> HttpConnectionManagerTracing | None:
    """The tracer of a connection manager, which joins the caller's `traceparent`."""
    if options.envoy.tracing is None:
        return None
    return HttpConnectionManagerTracing(
        random_sampling=Percent(value=options.envoy.trace_percent),
        spawn_upstream_span=True,
        provider=TracingHttp(
            name="envoy.tracers.opentelemetry",
            typed_config=typed(
                OpenTelemetryConfig(
                    grpc_service=grpc_service(COLLECTOR_CLUSTER), service_name="envoy"
                )
            ),
        ),
    )


def untouched_request_ids() -> RequestIdExtension:
    """Request ids stay as their clients wrote them, and do not decide what is traced.

    By default Envoy writes its decision into the id, and never traces a request whose id
    is no UUID.
    """
    return RequestIdExtension(
        typed_config=typed(
            UuidRequestIdConfig(pack_trace_reason=False, use_request_id_for_trace_sampling=False)
        )
    )
