"""Claims about extproc/xds/capabilities.py: who is withheld from which Envoy."""

from __future__ import annotations

from extproc.core.address import Address
from extproc.core.fleet.membership import Member
from extproc.header_names import ABILITIES
from extproc.xds.capabilities import (
    KEEPS,
    LACKS_KEYS,
    LACKS_TLS,
    REFUSED,
    UNHEARD,
    EnvoyCapabilities,
    reachable,
    read_capabilities,
)

ADDRESS = Address("10.0.0.1", 8080)
PLAIN = Member(ADDRESS)
SECURE = Member(ADDRESS, tls_profile="tls-a")
KEYED = Member(ADDRESS, authorization="Bearer k")
BOTH = Member(ADDRESS, tls_profile="tls-a", authorization="Bearer k")


def test_what_a_stream_reports() -> None:
    """Several headers add up; others, binary ones and none say nothing."""
    told: list[tuple[str, str | bytes]] = [
        (ABILITIES, "tls-a,tls-b"),
        (ABILITIES, "keys"),
        ("other", "tls-c"),
        ("x-bin", b"keys"),
    ]
    assert read_capabilities(told) == {"tls-a", "tls-b", "keys"}
    assert read_capabilities([]) == frozenset()
    assert read_capabilities([(ABILITIES, "")]) == frozenset()


def test_only_what_an_envoy_reaches_as_it_should_is_reported() -> None:
    members = (PLAIN, SECURE, KEYED, BOTH)
    assert reachable(members, frozenset()) == (PLAIN,)
    assert reachable(members, frozenset({"tls-a"})) == (PLAIN, SECURE)
    assert reachable(members, frozenset({"tls-b", "keys"})) == (PLAIN, KEYED)
    assert reachable(members, frozenset({"tls-a", "keys"})) == members


def test_what_one_envoy_cannot_do_counts_for_all() -> None:
    """Until it left; and what was known last stays while no stream is open."""
    abilities = EnvoyCapabilities()
    assert abilities.obstacle(SECURE) is UNHEARD
    assert abilities.obstacle(PLAIN) is None
    abilities.connect(1, frozenset({"tls-a", "keys"}))
    assert abilities.obstacle(BOTH) is None
    abilities.connect(2, frozenset({"tls-a"}))
    assert abilities.obstacle(SECURE) is None
    assert abilities.obstacle(BOTH) is LACKS_KEYS
    abilities.connect(3, frozenset())
    assert abilities.obstacle(BOTH) is LACKS_TLS
    for stream in (2, 3, 1):
        abilities.disconnect(stream)
    assert abilities.obstacle(BOTH) is None


def test_what_envoys_reached_before_needs_no_word_of_theirs_until_they_give_one() -> None:
    abilities = EnvoyCapabilities()
    abilities.expect([ADDRESS])
    elsewhere = Member(Address("10.0.0.2", 8080), tls_profile="tls-a")
    assert (abilities.obstacle(SECURE), abilities.obstacle(elsewhere)) == (None, UNHEARD)
    abilities.connect(1, frozenset({"tls-b"}))
    assert abilities.obstacle(SECURE) is LACKS_TLS


def test_cas_that_an_envoy_rejects_are_reported_as_that() -> None:
    """With no requests where it knows none for the server, and with those from before else."""
    abilities = EnvoyCapabilities()
    abilities.refused = frozenset({"tls-a"})
    assert abilities.obstacle(SECURE) is UNHEARD
    abilities.connect(1, frozenset({"tls-b"}))
    assert abilities.obstacle(BOTH) is REFUSED
    assert abilities.obstacle(KEYED) is LACKS_KEYS
    abilities.connect(2, frozenset({"tls-a", "tls-b"}))
    assert abilities.obstacle(SECURE) is REFUSED, "one of them has none"
    abilities.disconnect(1)
    assert (abilities.obstacle(SECURE), abilities.remark(SECURE)) == (None, KEEPS)
    assert abilities.remark(PLAIN) is abilities.remark(KEYED) is None
