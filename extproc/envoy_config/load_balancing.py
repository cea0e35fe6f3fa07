"""Envoy's host selection: the picker's list first, least_request without one."""

import betterproto2
from envoy_data_plane.envoy.config.cluster.v3 import LoadBalancingPolicy, LoadBalancingPolicyPolicy
from envoy_data_plane.envoy.extensions.load_balancing_policies.least_request.v3 import LeastRequest
from envoy_data_plane.envoy.extensions.load_balancing_policies.override_host.v3 import (
    OverrideHost,
    OverrideHostOverrideHostSource,
)
from envoy_data_plane.envoy.type.metadata.v3 import MetadataKey, MetadataKeyPathSegment

from extproc import header_names
from extproc.envoy_config.messages import extension


def override_host() -> LoadBalancingPolicy:
    """Retries use the list in order; addresses that Envoy does not know are skipped."""
    return _policy(
        "override_host",
        OverrideHost(
            override_host_sources=[
                OverrideHostOverrideHostSource(header=header_names.DESTINATION),
                OverrideHostOverrideHostSource(metadata=destination_key()),
            ],
            selected_host_key=_key(header_names.SERVED),
            fallback_policy=_policy("least_request", LeastRequest(choice_count=2)),
        ),
    )


def _policy(name: str, message: betterproto2.Message) -> LoadBalancingPolicy:
    config = extension(f"envoy.load_balancing_policies.{name}", message)
    return LoadBalancingPolicy(policies=[LoadBalancingPolicyPolicy(typed_extension_config=config)])


def destination_key() -> MetadataKey:
    """The destination from the picker's dynamic metadata."""
    return _key(header_names.DESTINATION)


def _key(name: str) -> MetadataKey:
    return MetadataKey(key=header_names.LB_NAMESPACE, path=[MetadataKeyPathSegment(key=name)])
