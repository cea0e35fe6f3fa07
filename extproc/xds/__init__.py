"""Endpoint and cluster discovery for Envoy."""

from extproc.xds.clusters import ClusterDiscovery
from extproc.xds.service import EndpointDiscovery, EndpointDiscoveryOptions

__all__ = ["ClusterDiscovery", "EndpointDiscovery", "EndpointDiscoveryOptions"]
