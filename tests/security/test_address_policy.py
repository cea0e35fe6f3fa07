"""Claims about extproc/security/address_policy.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.security.address_policy import PRIVATE, AddressPolicy

POLICY = AddressPolicy.of(PRIVATE, {9002, 9901})


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        ("10.1.2.3:8080", ""),
        ("172.31.0.1:8080", ""),
        ("192.168.0.1:8080", "8.8.8.8"),
        ("[fd00::1]:8080", ""),
        ("[::ffff:10.0.0.1]:8080", ""),
        ("8.8.8.8:8080", "8.8.8.8"),
        ("8.8.8.8:8080", "::ffff:8.8.8.8"),
        ("[2001:db8::1]:8080", "2001:db8:0::1"),
        ("127.0.0.1:8080", "127.0.0.1"),
        ("127.0.0.9:8080", "::1"),
        ("[::1]:8080", "127.0.0.1"),
    ],
)
def test_private_networks_and_the_callers_own_address_are_allowed(address: str, peer: str) -> None:
    assert POLICY.rejection(Address.parse(address), peer) == ""


@pytest.mark.parametrize(
    ("address", "peer", "word"),
    [
        ("169.254.169.254:80", "", "link-local"),
        ("169.254.0.9:8080", "169.254.0.9", "link-local"),
        ("[::ffff:169.254.169.254]:80", "", "link-local"),
        ("[fe80::1]:8080", "fe80::1", "link-local"),
        ("[fe80::1%eth0]:8080", "", "link-local"),
        ("[fd00:ec2::254]:80", "", "metadata"),
        ("10.0.0.1:9901", "10.0.0.1", "port of Envoy"),
        ("127.0.0.1:9002", "127.0.0.1", "port of Envoy"),
        ("8.8.8.8:8080", "", "agents.allowed_networks"),
        ("8.8.8.8:8080", "8.8.4.4", "agents.allowed_networks"),
        ("172.32.0.1:8080", "unix", "agents.allowed_networks"),
        ("127.0.0.1:8080", "10.0.0.1", "agents.allowed_networks"),
        ("[::1]:8080", "", "agents.allowed_networks"),
        ("100.64.0.1:8080", "", "agents.allowed_networks"),
    ],
)
def test_other_addresses_are_rejected(address: str, peer: str, word: str) -> None:
    assert word in POLICY.rejection(Address.parse(address), peer)


def test_no_setting_allows_link_local_or_own_ports() -> None:
    every = AddressPolicy.of(("0.0.0.0/0", "::/0"), {9901})
    for address in ("169.254.169.254:80", "[fe80::1]:1", "8.8.8.8:9901", "100.100.100.200:80"):
        assert every.rejection(Address.parse(address), "")
    assert not every.rejection(Address.parse("8.8.8.8:80"), "")
