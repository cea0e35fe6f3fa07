"""Queries name servers; only this module and its sockets use dnspython.

Every foreign error becomes a `Failed` value. Unlike the system's resolver this one reports
TTLs and SRV records, uses TCP if an answer was cut, and reads no hosts file.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.rdatatype
import dns.resolver

from extproc.core.address import Address
from extproc.transport.descriptors import own_fault
from scraper.discovery.dns_cache import Failed, Found, Hosts, Nothing, Service, Services
from scraper.discovery.dns_sockets import DnsSockets

TRY_S = 1.0
LIFETIME_S = 3.0

T = TypeVar("T", bound=Hashable)


class Resolver:
    """`nameservers` replace those that this machine is configured with."""

    def __init__(self, nameservers: Sequence[Address] = ()) -> None:
        self._nameservers = tuple(nameservers)
        self._resolver: dns.asyncresolver.Resolver | None = None
        self._sockets = DnsSockets()

    async def hosts(self, name: str) -> tuple[Hosts, Hosts]:
        """The IPv4 and the IPv6 addresses of a name, queried at the same time."""
        ipv4, ipv6 = await asyncio.gather(self._ask(name, "A"), self._ask(name, "AAAA"))
        return _read(ipv4, _address), _read(ipv6, _address)

    async def services(self, name: str) -> Services:
        """The hosts and ports of a service's name, like `_llama._tcp.example.com`."""
        return _read(await self._ask(name, "SRV"), _service)

    async def _ask(self, name: str, kind: str) -> dns.resolver.Answer | Nothing | Failed:
        try:
            # A name without a final dot goes through the search list, as people expect.
            return await self._configured().resolve(
                name,
                kind,
                search=not name.endswith("."),
                lifetime=LIFETIME_S,
                backend=self._sockets,
            )
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return Nothing()
        except dns.resolver.NoNameservers:
            return Failed("no name server answered")
        except dns.resolver.NoResolverConfiguration:
            return Failed("no name server is configured on this machine; set discovery.nameservers")
        except dns.exception.Timeout:
            return Failed(f"no answer within {LIFETIME_S:g} s")
        except (dns.exception.DNSException, OSError, UnicodeError) as error:
            if fault := own_fault(error):
                return Failed(f"this process has reached a limit ({fault})")
            return Failed(f"the lookup failed with {type(error).__name__}")

    def _configured(self) -> dns.asyncresolver.Resolver:
        if self._resolver is None:
            resolver = dns.asyncresolver.Resolver(configure=not self._nameservers)
            if self._nameservers:
                resolver.nameservers = [
                    dns.nameserver.Do53Nameserver(server.host, server.port)
                    for server in self._nameservers
                ]
            resolver.timeout = TRY_S
            self._resolver = resolver
        return self._resolver


def _address(record: Any) -> str:
    return str(record.address)


def _service(record: Any) -> Service | None:
    if record.target == dns.name.root or record.port == 0:
        return None  # a dot means that the service is not offered
    return Service(record.target.to_text(), int(record.port))


def _read(
    answer: dns.resolver.Answer | Nothing | Failed, read: Callable[[Any], T | None]
) -> Found[T] | Nothing | Failed:
    if not isinstance(answer, dns.resolver.Answer):
        return answer
    records = answer.rrset or ()
    values = tuple(value for value in map(read, records) if value is not None)
    if not values:
        return Nothing()
    return Found(values=values, ttl_s=float(answer.chaining_result.minimum_ttl))
