"""Claims about extproc/core/address.py."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import MAX_PORT, Address, AddressError, is_ip, is_loopback


def is_one_server(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Also for an IPv4-mapped IPv6 address."""
    plain = getattr(ip, "ipv4_mapped", None) or ip
    return not (plain.is_unspecified or plain.is_multicast)


SERVERS = st.ip_addresses().filter(is_one_server)


@given(SERVERS, st.integers(1, MAX_PORT))
def test_round_trip(ip: object, port: int) -> None:
    """What an address prints is read back as the same address."""
    address = Address.of(str(ip), port)
    assert Address.parse(str(address)) == address


def test_mapped_ipv4_is_its_ipv4() -> None:
    """One server named in two ways is one endpoint."""
    assert Address.parse("[::ffff:10.0.0.5]:80") == Address.parse("10.0.0.5:80")


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::]:80", "[::ffff:0.0.0.0]:80", "224.0.0.1:80"])
def test_an_address_of_many_servers_is_rejected(text: str) -> None:
    """A server that listens on 0.0.0.0 can be reached there too, beside its own address: one server
    would be two endpoints, and each of its slots would be leased twice."""
    with pytest.raises(AddressError, match="no address of a single server"):
        Address.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.5", "10.0.0.5:", "10.0.0.5:0", "10.0.0.5:65536", "10.0.0.5:-1", "::1:80", "a:80"],
)
def test_rejects(text: str) -> None:
    """A text that is no ip:port is rejected with a message, never misread."""
    with pytest.raises(AddressError, match=r"\S"):
        Address.parse(text)


def test_an_ip_address_is_distinguished_from_a_name() -> None:
    """Also one that is no address of a single server: it is no name either."""
    assert all(map(is_ip, ("10.0.0.5", "::1", "0.0.0.0", "224.0.0.1", "fe80::1%eth0")))
    assert not any(map(is_ip, ("gpu-1", "10.0.0.5:80", "[::1]", "10.0.0", "")))


def test_a_zone_must_not_break_a_list_of_addresses() -> None:
    """Addresses are written into headers, with commas between them."""
    assert str(Address.of("fe80::1%eth0.1", 80)) == "[fe80::1%eth0.1]:80"
    for zone in ("a,b", "a b", "a]"):
        with pytest.raises(AddressError, match="impossible zone"):
            Address.of(f"fe80::1%{zone}", 80)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.8.0.1:0", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.5:1", False),
        ("localhost.example:1", False),
    ],
)
def test_what_only_this_machine_reaches(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected
