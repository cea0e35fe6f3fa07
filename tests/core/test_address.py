"""Claims about extproc/core/address.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import MAX_PORT, Address, AddressError


@given(st.ip_addresses(), st.integers(1, MAX_PORT))
def test_round_trip(ip: object, port: int) -> None:
    """What an address prints is read back as the same address."""
    address = Address.of(str(ip), port)
    assert Address.parse(str(address)) == address


def test_mapped_ipv4_is_its_ipv4() -> None:
    """One server named in two ways is one endpoint."""
    assert Address.parse("[::ffff:10.0.0.5]:80") == Address.parse("10.0.0.5:80")


@pytest.mark.parametrize(
    "text",
    ["", "10.0.0.5", "10.0.0.5:", "10.0.0.5:0", "10.0.0.5:65536", "10.0.0.5:-1", "::1:80", "a:80"],
)
def test_refuses(text: str) -> None:
    """A text that is no ip:port is refused with a sentence, never misread."""
    with pytest.raises(AddressError, match=r"\S"):
        Address.parse(text)
