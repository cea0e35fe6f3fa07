"""The endpoint discovery service, from which every Envoy learns the fleet."""

from __future__ import annotations

from extproc.xds.envoy_stream import ConnectedEnvoy
from extproc.xds.options import EndpointDiscoveryOptions
from extproc.xds.service import EndpointDiscovery

__all__ = ["ConnectedEnvoy", "EndpointDiscovery", "EndpointDiscoveryOptions"]
