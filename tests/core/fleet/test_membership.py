"""Claims about extproc/core/fleet/membership.py: members, and their specification for Envoy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.fleet.endpoint import REPLACED_WHILE_DRAINED, EndpointSpec, Intent
from extproc.core.fleet.membership import Fleet, Member

A, B, C = (Address("10.0.0.1", port) for port in (1, 2, 3))


def spec(address: Address, name: str = "") -> EndpointSpec:
    return EndpointSpec(address=address, name=name)


def test_an_address_given_twice_is_one_endpoint() -> None:
    """Under two names, the first one counts; in two spellings, it is the same address."""
    fleet = Fleet()
    mapped = Address.parse("[::ffff:10.0.0.1]:1")
    assert fleet.set_members("s", [spec(A, "one"), spec(mapped, "two")]) == [A]
    assert [endpoint.spec.name for endpoint in fleet] == ["one"]


def test_changes_are_reported() -> None:
    """Added, removed, changed, returned: each once; the same list again changes nothing."""
    fleet = Fleet()
    assert fleet.set_members("s", [spec(A), spec(B)]) == [A, B]
    assert fleet.set_members("s", [spec(A), spec(B)]) == []
    assert fleet.set_members("s", [spec(A), spec(C)]) == [B, C]
    assert fleet.set_members("s", [spec(A), spec(B), spec(C)]) == [B]
    assert fleet.set_members("s", [spec(A), spec(B), spec(C, "new")]) == [C]


def test_a_removed_endpoint_stays_until_dropped() -> None:
    """Envoy still knows where requests run; a member cannot be dropped."""
    fleet = Fleet()
    fleet.set_members("s", [spec(A)])
    with pytest.raises(ValueError, match="still a member"):
        fleet.drop(A)
    assert fleet.set_members("s", []) == [A]
    assert A in fleet and fleet.sources_of(A) == []
    assert fleet.membership().members == (Member(A, is_draining=True),)
    fleet.drop(A)
    assert A not in fleet and len(fleet) == 0
    assert fleet.membership().members == ()


def test_a_source_with_tls_takes_precedence() -> None:
    """In any order: a later source without TLS does not open a plain connection."""
    fleet = Fleet()
    secure = EndpointSpec(address=A, tls_profile="tls-a", server_name="gpu.example")
    fleet.set_members("agents", [spec(A)])
    fleet.set_members("settings", [secure])
    assert fleet.membership().members == (Member(A, "gpu.example", tls_profile="tls-a"),)
    fleet.set_members("agents", [spec(A, "again")])
    assert fleet.membership().members[0].tls_profile == "tls-a"


def test_an_agent_does_not_override_the_ca_of_other_sources() -> None:
    """Its TLS settings apply only if no other source has any, in any order."""
    fleet = Fleet()
    reported = EndpointSpec(address=A, tls_profile="tls-agent", is_reported=True)
    fleet.set_members("agents", [reported])
    fleet.set_members("file", [spec(A)])
    assert fleet.membership().members[0].tls_profile == "tls-agent"
    fleet.set_members("agents", [EndpointSpec(address=A, is_reported=True)])
    fleet.set_members("file", [EndpointSpec(address=A, authorization="Bearer k")])
    assert fleet.membership().members[0].authorization == "Bearer k"
    fleet.set_members("agents", [reported])
    fleet.set_members("file", [EndpointSpec(address=A, tls_profile="tls-file")])
    assert fleet.membership().members[0].tls_profile == "tls-file"


@pytest.mark.parametrize(
    "demanding",
    [
        EndpointSpec(address=A, tls_profile="tls-a"),
        EndpointSpec(address=A, authorization="Bearer k"),
    ],
)
def test_an_endpoint_that_requires_envoy_support_waits_for_it(demanding: EndpointSpec) -> None:
    """A new endpoint, and one that changes to such: discovery must report that it is routable."""
    fleet = Fleet()
    fleet.set_members("s", [spec(A), replace(demanding, address=B)])
    assert [endpoint.is_routable for endpoint in fleet] == [True, False]
    fleet.set_members("s", [demanding])
    endpoint = fleet.get(A)
    assert endpoint is not None and not endpoint.is_routable


def test_an_endpoint_is_a_member_while_any_source_names_it() -> None:
    """Two sources for one address: the endpoint is removed with the last of them."""
    fleet = Fleet()
    fleet.set_members("file", [spec(A, "file's")])
    assert fleet.set_members("dns", [spec(A, "dns's")]) == []
    assert fleet.sources_of(A) == ["dns", "file"]
    assert [endpoint.spec.name for endpoint in fleet] == ["file's"]
    assert fleet.set_members("file", []) == [A], "now what dns says of it counts"
    assert [endpoint.spec.name for endpoint in fleet] == ["dns's"]
    assert fleet.set_members("dns", []) == [A]


def test_the_first_source_stays_the_first() -> None:
    """A source that repeats itself, as agents do, overrides no other."""
    fleet = Fleet()
    fleet.set_members("file", [spec(A, "file's")])
    fleet.set_members("dns", [spec(A, "dns's")])
    assert fleet.set_members("file", [spec(A, "file's")]) == []
    assert fleet.set_members("dns", [spec(A, "dns's anew")]) == []


def test_empty_sources_are_forgotten() -> None:
    """A thousand agents that joined and left leave nothing."""
    fleet = Fleet()
    for number in range(1000):
        fleet.set_members(f"agent {number}", [spec(A)])
        fleet.set_members(f"agent {number}", [])
    assert fleet._sources == {}
    assert fleet.specs_of("agent 1") == {}


def test_intent() -> None:
    """Envoy sees a drained endpoint as draining; an unknown endpoint has no intent."""
    fleet = Fleet()
    fleet.set_members("s", [spec(A)])
    for intent in (Intent.DRAINING, Intent.DISABLED):
        fleet.set_intent(A, intent, 0.0)
        assert fleet.membership().members == (Member(A, is_draining=True),)
    fleet.set_intent(A, Intent.ACTIVE, 0.0)
    assert fleet.membership().members == (Member(A),)
    with pytest.raises(KeyError):
        fleet.set_intent(B, Intent.DRAINING, 0.0)


def test_intent_persists_during_an_absence() -> None:
    """An endpoint that is named again before it was dropped has the same intent."""
    fleet = Fleet()
    fleet.set_members("s", [spec(A)])
    fleet.set_intent(A, Intent.DRAINING, 0.0)
    fleet.set_members("s", [])
    fleet.set_members("s", [spec(A)])
    assert [endpoint.intent for endpoint in fleet] == [Intent.DRAINING]
    assert [endpoint.issues for endpoint in fleet] == [(REPLACED_WHILE_DRAINED,)]
    fleet.set_intent(A, Intent.ACTIVE, 1.0)
    assert [endpoint.issues for endpoint in fleet] == [()]


def test_a_snapshot_lasts_until_something_changes() -> None:
    """The same object, and then one with a larger version."""
    fleet = Fleet()
    fleet.set_members("s", [spec(A)])
    snapshot = fleet.membership()
    fleet.set_members("s", [spec(A)])
    fleet.set_intent(A, Intent.ACTIVE, 0.0)
    assert fleet.membership() is snapshot
    fleet.set_intent(A, Intent.DRAINING, 0.0)
    drained = fleet.membership()
    fleet.set_members("s", [spec(A), spec(B)])
    grown = fleet.membership()
    assert snapshot.version < drained.version < grown.version
    assert [member.address for member in grown.members] == [A, B]


@given(
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.lists(st.sampled_from([A, B, C]), max_size=4)),
        max_size=12,
    )
)
def test_members_are_what_the_sources_name(calls: list[tuple[str, list[Address]]]) -> None:
    """After any calls: an endpoint is a member exactly while some source names it."""
    fleet, named = Fleet(), dict[str, set[Address]]()
    for source, addresses in calls:
        before = {endpoint.address for endpoint in fleet if not endpoint.is_removed}
        changed = fleet.set_members(source, map(spec, addresses))
        named[source] = set(addresses)
        members = {endpoint.address for endpoint in fleet if not endpoint.is_removed}
        assert members == set().union(*named.values())
        assert set(changed) == before ^ members
        assert len(changed) == len(set(changed))


def test_an_endpoint_goes_by_its_name() -> None:
    """Unless another one has the same, or it has none; after each change anew."""
    fleet = Fleet()
    first, second, third = (Address("10.0.0.1", port) for port in (1, 2, 3))
    fleet.set_members("a", [EndpointSpec(address=first, name="gpu"), EndpointSpec(address=third)])
    assert [fleet.name_of(one) for one in (first, second, third)] == [
        "gpu",
        "10.0.0.1:2",
        "10.0.0.1:3",
    ]
    assert [fleet.full_name_of(one) for one in (first, second)] == ["gpu (10.0.0.1:1)", str(second)]
    fleet.set_members("b", [EndpointSpec(address=second, name="gpu")])
    assert [fleet.name_of(one) for one in (first, second)] == [str(first), str(second)]
    fleet.set_members("b", [EndpointSpec(address=second, name="cpu")])
    assert [fleet.name_of(one) for one in (first, second)] == ["gpu", "cpu"]


def test_one_server_that_requires_a_pick_closes_the_fleet() -> None:
    """A request for its model could otherwise be answered by a server of another one."""
    fleet = Fleet()
    fleet.set_members("settings", [spec(A)])
    assert not any(member.requires_pick for member in fleet.membership().members)
    fleet.set_members("agents", [EndpointSpec(address=B, kept_models=2)])
    assert [member.requires_pick for member in fleet.membership().members] == [True, True]
    fleet.set_members("agents", [])
    fleet.drop(B)
    assert fleet.membership().members == (Member(A),)


def test_a_fleet_of_several_models_requires_picks() -> None:
    """A change is a new version, and nothing else is."""
    fleet = Fleet()
    fleet.set_members("settings", [spec(A)])
    before = fleet.membership()
    assert fleet.set_requires_pick(True) and not fleet.set_requires_pick(True)
    assert fleet.membership().members == (Member(A, requires_pick=True),)
    assert fleet.membership().version > before.version
    assert fleet.set_requires_pick(False)
    assert fleet.membership().members == before.members
