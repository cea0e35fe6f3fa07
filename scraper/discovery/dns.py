"""Endpoints by DNS: every address that a name has is an endpoint, for as long as it has it.

    type a    the A and AAAA records of a name, all with the port that is set
    type srv  the hosts and ports of a service's name, each with its A and AAAA records

Names are looked up again as their TTLs say, within the bounds of `Pace`; what is believed
when a lookup fails or finds nothing stands in `dns_cache.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from extproc.core.address import AddressError
from scraper.discovery.discovered_endpoint import (
    DiscoveredEndpoint,
    EndpointEntry,
    Publish,
    discover,
)
from scraper.discovery.dns_cache import DnsCache, Failed, Found, Nothing, Pace
from scraper.discovery.resolver import Hosts, Service, Services

SOURCE = "dns"
MAX_BACKOFF_S = 30.0

log = logging.getLogger("coxswain.discovery")

_Question: TypeAlias = tuple[str, int, bool]


class Lookups(Protocol):
    """The interface of `resolver.Resolver`."""

    async def hosts(self, name: str) -> tuple[Hosts, Hosts]: ...

    async def services(self, name: str) -> Services: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsName:
    """A name to follow. The entry's host is the name; `port` is for type a."""

    listing: EndpointEntry
    is_service: bool = False

    @property
    def question(self) -> _Question:
        """The part of the name that determines the lookup, without the servers' settings."""
        return self.listing.host, self.listing.port, self.is_service


@dataclass(slots=True, kw_only=True)
class _Host:
    """A followed name."""

    ipv4: DnsCache[str] = field(default_factory=DnsCache)
    ipv6: DnsCache[str] = field(default_factory=DnsCache)

    @property
    def has_spoken(self) -> bool:
        return bool(self.ips) or (self.ipv4.has_spoken and self.ipv6.has_spoken)

    @property
    def ips(self) -> list[str]:
        return sorted(self.ipv4.values) + sorted(self.ipv6.values)


class _Follower:
    """One name, looked up repeatedly. Without side effects except for the resolver's lookups."""

    def __init__(self, name: DnsName, lookups: Lookups, pace: Pace) -> None:
        self.name = name
        self.nominations: tuple[DiscoveredEndpoint, ...] = ()
        self.has_spoken = False
        self._lookups = lookups
        self._pace = pace
        self._services: DnsCache[Service] = DnsCache()
        self._hosts: dict[str, _Host] = {}
        self._found: list[tuple[Service, str]] = []
        self._failures = 0
        self.problem = ""
        """Why the last lookup failed; empty if it did not."""

    def ask(self, lookups: Lookups, pace: Pace) -> None:
        """Use another resolver from the next lookup on; known answers stay."""
        self._lookups = lookups
        self._pace = pace

    def rename(self, name: DnsName) -> None:
        """The same question, with another key or other slots: its endpoints stay."""
        self.name = name
        self._nominate()

    async def look(self) -> float:
        """Look it up once, in a few seconds at most; returns the seconds until the next lookup."""
        answers: list[object] = []
        services: tuple[Service, ...] = (Service(self.name.listing.host, self.name.listing.port),)
        if self.name.is_service:
            answer = await self._lookups.services(self.name.listing.host)
            self._services.take(answer)
            answers.append(answer)
            services = self._services.values
        hosts = list(dict.fromkeys(service.host for service in services))
        self._hosts = {host: self._hosts.get(host, _Host()) for host in hosts}
        for ipv4, ipv6 in await asyncio.gather(*map(self._look_up, hosts)):
            answers += _what_counts(ipv4, ipv6)
        self._settle(services)
        return self._delay_s(answers)

    async def _look_up(self, name: str) -> tuple[Hosts, Hosts]:
        ipv4, ipv6 = await self._lookups.hosts(name)
        self._hosts[name].ipv4.take(ipv4)
        self._hosts[name].ipv6.take(ipv6)
        return ipv4, ipv6

    def _settle(self, services: Sequence[Service]) -> None:
        self._found = [
            (service, ip) for service in services for ip in self._hosts[service.host].ips
        ]
        self._nominate()
        self.has_spoken = (not self.name.is_service or self._services.has_spoken) and all(
            host.has_spoken for host in self._hosts.values()
        )

    def _nominate(self) -> None:
        nominations = {}
        for service, ip in self._found:
            host = service.host.rstrip(".")
            listing = replace(self.name.listing, host=host, port=service.port)
            try:
                nomination = discover(listing, ip)
            except AddressError:
                continue
            nominations[nomination.spec.address] = nomination
        self.nominations = tuple(nominations.values())

    def _delay_s(self, answers: Sequence[object]) -> float:
        failed = [answer for answer in answers if isinstance(answer, Failed)]
        shown = self.name.listing.host
        self.problem = ""
        if failed:
            stay = f"keeping its {len(self.nominations)} endpoints"
            self.problem = f"dns: {shown}: {failed[0].reason}; {stay}"
            if not self._failures:
                log.warning("%s", self.problem)
        elif self._failures:
            log.info("dns: the lookup of %s works again", shown)
        self._failures = self._failures + 1 if failed else 0
        delay_s = self._pace.next_delay_s(answers)
        backoff_s = self._pace.min_s * 2.0 ** min(self._failures, 10)
        return max(delay_s, min(backoff_s, MAX_BACKOFF_S)) if failed else delay_s


def _what_counts(*answers: Hosts) -> Sequence[Hosts]:
    """One address family is enough, because most names have only one; else report the failure."""
    found = [answer for answer in answers if isinstance(answer, Found)]
    failed = [answer for answer in answers if isinstance(answer, Failed)]
    return found or failed or [Nothing()]


class DnsEndpoints:
    """Follows names. Belongs to one event loop; end it with `aclose`."""

    def __init__(
        self,
        publish: Publish,
        lookups: Lookups,
        pace: Pace | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._publish = publish
        self._sleep = sleep
        self._lookups = lookups
        self._pace = pace or Pace()
        self._followers: dict[_Question, _Follower] = {}
        self._tasks: dict[_Question, asyncio.Task[None]] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """The names whose lookup fails, and why, as text."""
        return tuple(one.problem for one in self._followers.values() if one.problem)

    def ask(self, lookups: Lookups, pace: Pace) -> None:
        """Use these name servers from now on; every name keeps its endpoints."""
        self._lookups = lookups
        self._pace = pace
        for follower in self._followers.values():
            follower.ask(lookups, pace)
            self._start(follower)

    def set(self, names: Sequence[DnsName]) -> None:
        """Follow these names from now on; a name that is followed already keeps its endpoints."""
        wanted: dict[_Question, DnsName] = {}
        for name in names:
            wanted.setdefault(name.question, name)
        for question in self._followers.keys() - wanted.keys():
            self._tasks.pop(question).cancel()
            del self._followers[question]
        for question, name in wanted.items():
            follower = self._followers.get(question)
            if follower is not None:
                follower.rename(name)
                continue
            follower = self._followers[question] = _Follower(name, self._lookups, self._pace)
            self._start(follower)
        self._tell()

    def _start(self, follower: _Follower) -> None:
        """Begin to follow it, or restart."""
        name = follower.name
        task = self._tasks.get(name.question)
        if task is not None:
            task.cancel()
        self._tasks[name.question] = asyncio.create_task(
            self._follow(follower), name=f"follow {name.listing.host}"
        )

    async def aclose(self) -> None:
        """Stop all lookups; published endpoints stay."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _follow(self, follower: _Follower) -> None:
        while True:
            before, had_spoken = follower.nominations, follower.has_spoken
            try:
                delay_s = await follower.look()
            except Exception:  # a bug; another answer may work
                log.exception("dns: the lookup of %s failed", follower.name.listing.host)
                delay_s = MAX_BACKOFF_S
            if follower.nominations != before or not had_spoken:
                if follower.nominations != before:
                    log.info(
                        "dns: %s has %d endpoints",
                        *(follower.name.listing.host, len(follower.nominations)),
                    )
                self._tell()
            await self._sleep(delay_s)

    def _tell(self) -> None:
        nominations = [one for f in self._followers.values() for one in f.nominations]
        is_complete = all(follower.has_spoken for follower in self._followers.values())
        self._publish(SOURCE, nominations, is_complete)
