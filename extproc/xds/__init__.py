"""Endpoint and cluster discovery for Envoy."""

from extproc.xds.clusters import ClusterDiscovery
from extproc.xds.options import EndpointDiscoveryOptions
from extproc.xds.service import EndpointDiscovery

__all__ = ["ClusterDiscovery", "EndpointDiscovery", "EndpointDiscoveryOptions"]
