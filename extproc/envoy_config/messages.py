"""The few message shapes that every part of the configuration is made of."""

from collections.abc import Sequence
from datetime import timedelta

import betterproto2
from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    GrpcService,
    GrpcServiceEnvoyGrpc,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
    RetryPolicy,
    SocketAddress,
    TypedExtensionConfig,
)
from envoy_data_plane.envoy.type.matcher.v3 import (
    MetadataMatcher,
    MetadataMatcherPathSegment,
    ValueMatcher,
)
from envoy_data_plane.google.protobuf import Any

from extproc import header_names
from extproc.envoy_config.options import HostPort

NEVER = timedelta(0)
"""Envoy reads a timeout of zero as none."""


def seconds(value_s: float) -> timedelta:
    """A duration; 0 is `NEVER`."""
    return timedelta(seconds=value_s)


def address(place: HostPort) -> Address:
    """`place` as Envoy writes it."""
    return Address(socket_address=SocketAddress(address=place.host, port_value=place.port))


def typed(message: betterproto2.Message) -> Any:
    """`message` with its type's name, as every extension point of Envoy takes it."""
    return Any.pack(message)


def extension(name: str, message: betterproto2.Message) -> TypedExtensionConfig:
    """A named extension with its configuration."""
    return TypedExtensionConfig(name=name, typed_config=typed(message))


def set_header(key: str, value: str) -> HeaderValueOption:
    """Write a header in place of what is there. An empty one changes nothing."""
    return HeaderValueOption(
        header=HeaderValue(key=key, value=value),
        append_action=HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )


def has_metadata(key: str) -> MetadataMatcher:
    """Whether the picker has set this key of a request's metadata, which clients cannot."""
    return MetadataMatcher(
        filter=header_names.LB_NAMESPACE,
        path=[MetadataMatcherPathSegment(key=key)],
        value=ValueMatcher(present_match=True),
    )


def grpc_service(
    cluster: str,
    retry_policy: RetryPolicy | None = None,
    metadata: Sequence[tuple[str, str]] = (),
    reopening: RetryPolicy | None = None,
) -> GrpcService:
    """A gRPC service that lives in one of our clusters; `metadata` goes with each stream, and
    nothing that Envoy would add of its own: information about its client is useless there.
    `reopening` opens a stream again that was lost before its first answer."""
    return GrpcService(
        retry_policy=reopening,
        envoy_grpc=GrpcServiceEnvoyGrpc(
            cluster_name=cluster, retry_policy=retry_policy, skip_envoy_headers=True
        ),
        initial_metadata=[HeaderValue(key=key, value=value) for key, value in metadata],
    )
