"""The fleet as Envoy reads it: one ClusterLoadAssignment for each name that is asked for.

A draining endpoint is sent as DRAINING: Envoy's fallback leaves it alone, while its requests
run on. So is one that only a pick may choose (docs/decisions/0150). The `override_host` policy
ignores health (docs/decisions), so what a pick may choose is decided by the picker, and here only
that Envoy knows the address.
"""

from google.protobuf.any_pb2 import Any

from extproc.core.fleet.membership import Member, Membership
from extproc.header_names import COXSWAIN_NAMESPACE, SERVER_AUTHORIZATION, TLS_PROFILE
from extproc.pb.base_pb2 import Address, HealthStatus, SocketAddress
from extproc.pb.endpoint_pb2 import (
    ClusterLoadAssignment,
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from extproc.xds.capabilities import reachable
from extproc.xds.subscription import ENDPOINT_TYPE

SOCKET_MATCH = "envoy.transport_socket_match"

MAX_KINDS = 16
"""Of Envoys with different abilities, for which the fleet is kept as it was written."""


class Assignments:
    """Writes each member once, and each membership once, however many Envoys and names want it.

    Messages that are written one after the other read as one: that is how the parts are joined.
    """

    def __init__(self) -> None:
        self._version: int | None = None
        self._endpoints: dict[frozenset[str], bytes] = {}
        self._written: dict[Member, bytes] = {}

    def resource(
        self, name: str, membership: Membership, abilities: frozenset[str] = frozenset()
    ) -> Any:
        """The assignment of the cluster `name` for an Envoy with these abilities."""
        if self._version != membership.version:
            written = self._written
            self._written = {
                member: written.get(member) or _locality(member) for member in membership.members
            }
            self._endpoints.clear()
            self._version = membership.version
        endpoints = self._endpoints.get(abilities)
        if endpoints is None:
            if len(self._endpoints) >= MAX_KINDS:
                self._endpoints.clear()
            endpoints = self._endpoints[abilities] = self._join(
                reachable(membership.members, abilities)
            )
        named = ClusterLoadAssignment(cluster_name=name).SerializeToString()
        return Any(type_url=ENDPOINT_TYPE, value=named + endpoints)

    def _join(self, members: tuple[Member, ...]) -> bytes:
        nameless = ClusterLoadAssignment()
        if members:
            written = b"".join(self._written[member] for member in members)
            nameless.endpoints.add().MergeFromString(written)
        return nameless.SerializeToString()


def _locality(member: Member) -> bytes:
    """A locality with this endpoint alone, in wire format."""
    return LocalityLbEndpoints(lb_endpoints=[_endpoint(member)]).SerializeToString()


def _endpoint(member: Member) -> LbEndpoint:
    socket = SocketAddress(address=member.address.host, port_value=member.address.port)
    is_left_alone = member.is_draining or member.requires_pick
    message = LbEndpoint(
        endpoint=Endpoint(address=Address(socket_address=socket), hostname=member.hostname),
        health_status=HealthStatus.DRAINING if is_left_alone else HealthStatus.UNKNOWN,
    )
    if member.tls_profile:
        namespace = message.metadata.filter_metadata[SOCKET_MATCH]
        namespace.fields[TLS_PROFILE].string_value = member.tls_profile
    if member.authorization:
        namespace = message.metadata.filter_metadata[COXSWAIN_NAMESPACE]
        namespace.fields[SERVER_AUTHORIZATION].string_value = member.authorization
    return message
