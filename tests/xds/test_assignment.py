"""What Envoy is told of the fleet, read with Envoy's own full types."""

from __future__ import annotations

from typing import Any

import pytest
from envoy_data_plane.envoy.config.core.v3 import HealthStatus
from envoy_data_plane.envoy.config.endpoint.v3 import ClusterLoadAssignment as FullAssignment

from extproc.core.address import Address
from extproc.core.fleet.membership import Member, Membership
from extproc.pb.endpoint_pb2 import ClusterLoadAssignment
from extproc.xds.assignment import MAX_KINDS, Assignments

pytestmark = pytest.mark.filterwarnings("ignore:Using `@model_validator`:DeprecationWarning")


def test_an_assignment_reads_as_envoys() -> None:
    """Name, addresses, host names, and what Envoy must not choose; IPv6 without brackets."""
    membership = Membership(
        7,
        (
            Member(Address.of("10.0.0.5", 8080), "llama-0.example"),
            Member(Address.of("::1", 8081), is_draining=True),
            Member(Address.of("::1", 8082), requires_pick=True),
        ),
    )
    resource = Assignments().resource("llama", membership)
    assert resource.type_url.endswith("/envoy.config.endpoint.v3.ClusterLoadAssignment")
    told: Any = FullAssignment.parse(resource.value)
    assert told.cluster_name == "llama"
    (locality,) = told.endpoints
    assert [
        (
            part.endpoint.address.socket_address.address,
            part.endpoint.address.socket_address.port_value,
            part.endpoint.hostname,
            part.health_status,
        )
        for part in locality.lb_endpoints
    ] == [
        ("10.0.0.5", 8080, "llama-0.example", HealthStatus.UNKNOWN),
        ("::1", 8081, "", HealthStatus.DRAINING),
        ("::1", 8082, "", HealthStatus.DRAINING),
    ]


def test_an_empty_fleet_is_an_assignment_without_endpoints() -> None:
    """Envoy must hear that nobody is left."""
    value = Assignments().resource("llama", Membership(1, ())).value
    assert ClusterLoadAssignment.FromString(value) == ClusterLoadAssignment(cluster_name="llama")


def test_a_new_version_is_written_again() -> None:
    """The bytes kept from the version before are not used for the next."""
    assignments = Assignments()
    first, second = Address.of("10.0.0.5", 1), Address.of("10.0.0.6", 1)
    assignments.resource("llama", Membership(1, (Member(first),)))
    value = assignments.resource("b", Membership(2, (Member(first), Member(second)))).value
    told = ClusterLoadAssignment.FromString(value)
    assert (told.cluster_name, len(told.endpoints[0].lb_endpoints)) == ("b", 2)


def test_each_of_many_kinds_of_envoys_gets_what_it_reaches() -> None:
    """More kinds than are kept, each asking twice, between one that is able to do nothing."""
    assignments = Assignments()
    kinds = [f"tls-{number}" for number in range(2 * MAX_KINDS)]
    members = tuple(
        Member(Address.of("10.0.0.5", port), tls_profile=kind) for port, kind in enumerate(kinds, 1)
    )
    membership = Membership(1, members)

    def ports(*abilities: str) -> list[int]:
        value = assignments.resource("llama", membership, frozenset(abilities)).value
        told = ClusterLoadAssignment.FromString(value)
        return [
            part.endpoint.address.socket_address.port_value
            for locality in told.endpoints
            for part in locality.lb_endpoints
        ]

    for _ in range(2):
        for port, kind in enumerate(kinds, 1):
            assert (ports(kind), ports()) == ([port], [])
