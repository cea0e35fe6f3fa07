"""The addresses that an agent or an operator may add to the fleet.

Clients' requests are sent to the address of an endpoint. So a caller who can add any address could
make Envoy request its own admin pages, a cloud's metadata service or any other host, and read the
response.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from extproc.core.address import Address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
METADATA: Final = frozenset(
    {ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")}
)
"""Metadata services of clouds that are not link-local."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPolicy:
    """`networks` are the permitted ones; `own_ports` are the ports of Envoy and of Coxswain."""

    networks: tuple[Network, ...]
    own_ports: frozenset[int] = frozenset()

    @classmethod
    def of(cls, networks: Iterable[str], own_ports: Iterable[int] = ()) -> AddressPolicy:
        """Create a policy from networks as text; raises `ValueError` for an invalid one."""
        return cls(
            networks=tuple(ipaddress.ip_network(each, strict=False) for each in networks),
            own_ports=frozenset(own_ports),
        )

    def rejection(self, address: Address, peer: str) -> str:
        """Why a caller at the IP address `peer` (empty: unknown) may not add `address`; empty if
        it may.

        A caller may add its own address, and a loopback address if it calls over loopback.
        """
        ip = ipaddress.ip_address(address.host)
        if ip.is_link_local or ip in METADATA:
            return f"{address} is link-local, or a cloud's metadata service; no server is there"
        if address.port in self.own_ports:
            return (
                f"{address} has a port of Envoy or of Coxswain, which no server can have; "
                "let the server listen on another"
            )
        caller = _ip(peer)
        if ip == caller or (ip.is_loopback and caller is not None and caller.is_loopback):
            return ""
        if any(ip.version == network.version and ip in network for network in self.networks):
            return ""
        return (
            f"{address} is in none of the networks of the setting agents.allowed_networks, "
            "and not the caller's own address"
        )


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip
