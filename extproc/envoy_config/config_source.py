"""Where Envoy gets what the picker serves: the fleet, its cluster, the keys of clients."""

from envoy_data_plane.envoy.config.core.v3 import (
    ApiConfigSource,
    ApiConfigSourceApiType,
    ApiVersion,
    BackoffStrategy,
    ConfigSource,
    RetryPolicy,
)

from extproc.envoy_config.messages import grpc_service, seconds
from extproc.envoy_config.options import EnvoyOptions
from extproc.envoy_config.transport import abilities


def from_picker(options: EnvoyOptions) -> ConfigSource:
    """The picker serves it on its gRPC port; a picker that restarts is found in seconds."""
    soon = RetryPolicy(
        retry_back_off=BackoffStrategy(base_interval=seconds(0.2), max_interval=seconds(2))
    )
    return ConfigSource(
        resource_api_version=ApiVersion.V3,
        initial_fetch_timeout=seconds(options.discovery_timeout_s),
        api_config_source=ApiConfigSource(
            api_type=ApiConfigSourceApiType.GRPC,
            transport_api_version=ApiVersion.V3,
            grpc_services=[grpc_service(options.picker_cluster, soon, abilities(options))],
            set_node_on_first_message_only=True,
        ),
    )
