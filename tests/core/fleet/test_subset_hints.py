"""Claims about extproc/core/fleet/subset_hints.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address, AddressError
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.membership import Fleet
from extproc.core.fleet.subset_hints import MAX_HINTS, MAX_KEPT_BYTES, SubsetHints, _canonical

A, B, C = Address("10.0.0.1", 8080), Address("10.0.0.2", 8080), Address("10.0.0.2", 80)
V6 = Address("2001:db8::1", 8080)
MEMBERS = (A, B, C, V6)


def fleet_of(*members: Address) -> Fleet:
    fleet = Fleet()
    fleet.set_members("test", [EndpointSpec(address=member) for member in members])
    return fleet


def allowed(fleet: Fleet, *entries: str) -> frozenset[Address]:
    subsets = SubsetHints(fleet)
    return subsets.allowed(subsets.add(b"raw", entries))


def read_one_by_one(fleet: Fleet, entries: list[str]) -> set[Address]:
    """The same without any optimisation: each entry is parsed as an address, or as a host."""
    found: set[Address] = set()
    for entry in entries:
        try:
            whole = Address.parse(entry)
            found |= {e.address for e in fleet if e.address == whole}
            continue
        except AddressError:
            pass
        try:
            host = Address.of(entry.removeprefix("[").removesuffix("]"), 1).host
            found |= {e.address for e in fleet if e.address.host == host}
        except AddressError:
            pass
    return found


PIECES = ["10.0.0.1", "10.0.0.2", "010.0.0.1", "2001:db8::1", "2001:DB8:0::1", "::ffff:10.0.0.1"]
SPELLINGS = st.one_of(
    st.sampled_from(PIECES),
    st.builds(
        "{}{}{}{}".format,
        st.sampled_from(["", "["]),
        st.sampled_from(PIECES),
        st.sampled_from(["", "]"]),
        st.sampled_from(["", ":8080", ":08080", ":80", ":0", ":99999", ":+80", ":"]),
    ),
    st.text("0123456789.:[]afF%", max_size=20),
)


@given(st.lists(SPELLINGS, max_size=6))
def test_an_entry_matches_the_endpoints_of_its_address(entries: list[str]) -> None:
    fleet = fleet_of(*MEMBERS)
    assert allowed(fleet, *entries) == read_one_by_one(fleet, entries)


def test_what_a_hint_allows_changes_with_the_fleet() -> None:
    """It is computed again only after a change: the same set is returned while nothing changed."""
    fleet = fleet_of(A, B)
    subsets = SubsetHints(fleet)
    hint = subsets.add(b"hint", ["10.0.0.1:8080", "10.0.0.2"])
    found = subsets.allowed(hint)
    assert found == {A, B} and subsets.allowed(hint) is found
    fleet.set_members("more", [EndpointSpec(address=C), EndpointSpec(address=V6)])
    assert subsets.allowed(hint) == {A, B, C}
    fleet.set_members("test", [])
    assert subsets.allowed(hint) == {C}
    fleet.set_members("test", [EndpointSpec(address=B)])
    assert subsets.allowed(hint) == {B, C}


def test_a_repeated_hint_is_not_parsed_again() -> None:
    subsets = SubsetHints(fleet_of(*MEMBERS))
    hint = subsets.add(b"one", ["10.0.0.1"])
    assert subsets.find(b"one") is hint is subsets.add(b"one", iter(()))
    assert subsets.find(b"other") is None


@pytest.mark.parametrize(("entries", "chars"), [(1, 10), (4000, 60), (1, 200_000)])
def test_the_memory_is_bounded(entries: int, chars: int) -> None:
    """In hints and in bytes; the most recently used one stays."""
    subsets = SubsetHints(fleet_of(*MEMBERS))
    for number in range(3 * MAX_HINTS):
        text = f"{number:0{chars}}"
        subsets.add(text.encode() * entries, [text] * entries)
        subsets.find(f"{0:0{chars}}".encode() * entries)
        assert len(subsets) <= MAX_HINTS and subsets.kept_bytes <= MAX_KEPT_BYTES
    assert subsets.find(f"{0:0{chars}}".encode() * entries) is not None
    assert subsets.find(f"{1:0{chars}}".encode() * entries) is None


def test_a_long_hint_of_unknown_addresses_is_not_parsed() -> None:
    """An IPv4 address has one spelling, so an entry that matches no member needs no parsing."""
    strangers = [f"10.1.{number >> 8}.{number & 255}" for number in range(1000)]
    before = _canonical.cache_info().misses
    entries = (*strangers, *(f"{stranger}:8080" for stranger in strangers))
    assert allowed(fleet_of(*MEMBERS), *entries) == frozenset()
    assert _canonical.cache_info().misses == before


def test_two_hints_of_one_fleet_allow_each_their_own() -> None:
    subsets = SubsetHints(fleet_of(*MEMBERS))
    one, two = subsets.add(b"one", [str(A)]), subsets.add(b"two", [B.host])
    assert subsets.allowed(one) == {A} and subsets.allowed(two) == {B, C}


def test_an_entry_longer_than_any_address_allows_nothing() -> None:
    entry = f"[2001:db8:{'0' * 100}:1]:8080"
    assert allowed(fleet_of(*MEMBERS), entry) == frozenset()
    assert allowed(fleet_of(*MEMBERS), entry, str(A)) == {A}
