"""The identity of an endpoint: one IP address and one port, in canonical form."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

MAX_PORT = 65_535


class AddressError(ValueError):
    """A text that is no `ip:port`; `str(error)` describes a valid one."""


class Address(NamedTuple):
    """Where a server listens. Equal addresses are one endpoint, from any source.

    `host` is an IP literal in canonical form (an IPv4-mapped IPv6 address becomes its IPv4
    address); names are resolved before. A tuple, because every decision hashes some.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `10.0.0.5:8080` or `[::1]:8080`.

        Raises `AddressError` for anything else: a name, a missing or impossible port.
        """
        host, colon, port = text.strip().rpartition(":")
        if not colon:
            raise AddressError(f"{text!r} has no port; write host:port, e.g. 10.0.0.5:8080")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise AddressError(f"{text!r}: put an IPv6 address in brackets, e.g. [::1]:8080")
        return cls.of(host, port)

    @classmethod
    def of(cls, host: str, port: int | str) -> Address:
        """Create an address from its parts; raises `AddressError` if either is impossible."""
        try:
            literal = ipaddress.ip_address(host)
        except ValueError:
            raise AddressError(f"{host!r} is not an IP address") from None
        if isinstance(literal, ipaddress.IPv6Address) and literal.ipv4_mapped is not None:
            literal = literal.ipv4_mapped
        if literal.is_unspecified or literal.is_multicast:
            raise AddressError(f"{host!r} is no address of a single server")
        if isinstance(literal, ipaddress.IPv6Address) and not _is_zone(literal.scope_id):
            raise AddressError(f"{host!r} has an impossible zone")
        digits = str(port)
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= len(str(MAX_PORT))
        if not (is_number and 0 < int(digits) <= MAX_PORT):
            raise AddressError(f"{port!r} is not a port; ports go from 1 to {MAX_PORT}")
        return cls(str(literal), int(digits))

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"


def is_ip(host: str) -> bool:
    """Whether the text is an IP address without brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches `host:port`. A name other than localhost may not be."""
    host = address.rpartition(":")[0].strip("[]")
    return ipaddress.ip_address(host).is_loopback if is_ip(host) else host == "localhost"


def _is_zone(scope_id: str | None) -> bool:
    """Addresses are written into headers and lists: a zone must not contain their separators."""
    return scope_id is None or all(c.isascii() and (c.isalnum() or c in "._-") for c in scope_id)
