"""Endpoints by DNS: each address of a name is an endpoint as long as the name has it.

    type a    the A and AAAA records of a name, all with the port that is set
    type srv  the hosts and ports of a service's name, each with its A and AAAA records

Names are looked up again as their TTLs say, within the bounds of `Pace`; `dns_cache.py` says which
answers are accepted.
"""

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
from scraper.discovery.dns_cache import (
    DnsCache,
    Failed,
    Found,
    Hosts,
    Nothing,
    Pace,
    Service,
    Services,
)

SOURCE = "dns"
MAX_BACKOFF_S = 30.0

log = logging.getLogger("coxswain.discovery")

_Query: TypeAlias = tuple[str, int, bool]


class Lookups(Protocol):
    """The interface of `resolver.Resolver`."""

    async def hosts(self, name: str) -> tuple[Hosts, Hosts]: ...

    async def services(self, name: str) -> Services: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsName:
    """A name to follow. The entry's host is the name; `port` is for type a."""

    entry: EndpointEntry
    is_service: bool = False

    @property
    def query(self) -> _Query:
        """The part of the name that determines the lookup, without the servers' settings."""
        return self.entry.host, self.entry.port, self.is_service


@dataclass(slots=True, kw_only=True)
class _Host:
    """A followed name."""

    ipv4: DnsCache[str] = field(default_factory=DnsCache)
    ipv6: DnsCache[str] = field(default_factory=DnsCache)

    @property
    def has_answered(self) -> bool:
        return bool(self.ips) or (self.ipv4.has_answered and self.ipv6.has_answered)

    @property
    def ips(self) -> list[str]:
        return sorted(self.ipv4.values) + sorted(self.ipv6.values)


class _Follower:
    """One name, looked up repeatedly. Without side effects except for the resolver's lookups."""

    def __init__(self, name: DnsName, lookups: Lookups, pace: Pace) -> None:
        self.name = name
        self.discovered: tuple[DiscoveredEndpoint, ...] = ()
        self.has_answered = False
        self._lookups = lookups
        self._pace = pace
        self._services: DnsCache[Service] = DnsCache()
        self._hosts: dict[str, _Host] = {}
        self._found: list[tuple[Service, str]] = []
        self._failures = 0
        self.problem = ""
        """Why the last lookup failed; empty if it did not."""

    def use(self, lookups: Lookups, pace: Pace) -> None:
        """Use another resolver from the next lookup on; known endpoints stay."""
        self._lookups = lookups
        self._pace = pace

    def rename(self, name: DnsName) -> None:
        """The same query, with another key or other slots: its endpoints stay."""
        self.name = name
        self._discover()

    async def look_up(self) -> float:
        """Look it up once, in a few seconds at most; returns the seconds until the next lookup."""
        answers: list[object] = []
        services: tuple[Service, ...] = (Service(self.name.entry.host, self.name.entry.port),)
        if self.name.is_service:
            answer = await self._lookups.services(self.name.entry.host)
            self._services.take(answer)
            answers.append(answer)
            services = self._services.values
        hosts = list(dict.fromkeys(service.host for service in services))
        self._hosts = {host: self._hosts.get(host, _Host()) for host in hosts}
        for ipv4, ipv6 in await asyncio.gather(*map(self._look_up_host, hosts)):
            answers += _decisive(ipv4, ipv6)
        self._settle(services)
        return self._delay_s(answers)

    async def _look_up_host(self, name: str) -> tuple[Hosts, Hosts]:
        ipv4, ipv6 = await self._lookups.hosts(name)
        self._hosts[name].ipv4.take(ipv4)
        self._hosts[name].ipv6.take(ipv6)
        return ipv4, ipv6

    def _settle(self, services: Sequence[Service]) -> None:
        self._found = [
            (service, ip) for service in services for ip in self._hosts[service.host].ips
        ]
        self._discover()
        self.has_answered = (not self.name.is_service or self._services.has_answered) and all(
            host.has_answered for host in self._hosts.values()
        )

    def _discover(self) -> None:
        found = {}
        for service, ip in self._found:
            host = service.host.rstrip(".")
            entry = replace(self.name.entry, host=host, port=service.port)
            try:
                endpoint = discover(entry, ip)
            except AddressError:
                continue
            found[endpoint.spec.address] = endpoint
        self.discovered = tuple(found.values())

    def _delay_s(self, answers: Sequence[object]) -> float:
        failed = [answer for answer in answers if isinstance(answer, Failed)]
        shown = self.name.entry.host
        self.problem = ""
        if failed:
            stay = f"keeping its {len(self.discovered)} endpoints"
            self.problem = f"dns: {shown}: {failed[0].reason}; {stay}"
            if not self._failures:
                log.warning("%s", self.problem)
        elif self._failures:
            log.info("dns: the lookup of %s works again", shown)
        self._failures = self._failures + 1 if failed else 0
        delay_s = self._pace.next_delay_s(answers)
        backoff_s = self._pace.min_s * 2.0 ** min(self._failures, 10)
        return max(delay_s, min(backoff_s, MAX_BACKOFF_S)) if failed else delay_s


def _decisive(*answers: Hosts) -> Sequence[Hosts]:
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
        self._followers: dict[_Query, _Follower] = {}
        self._tasks: dict[_Query, asyncio.Task[None]] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """The names whose lookup fails, and why, as text."""
        return tuple(one.problem for one in self._followers.values() if one.problem)

    def use(self, lookups: Lookups, pace: Pace) -> None:
        """Use these name servers from now on; every name keeps its endpoints."""
        self._lookups = lookups
        self._pace = pace
        for follower in self._followers.values():
            follower.use(lookups, pace)
            self._start(follower)

    def set(self, names: Sequence[DnsName]) -> None:
        """Follow these names from now on; a name that is followed already keeps its endpoints."""
        wanted: dict[_Query, DnsName] = {}
        for name in names:
            wanted.setdefault(name.query, name)
        for query in self._followers.keys() - wanted.keys():
            self._tasks.pop(query).cancel()
            del self._followers[query]
        for query, name in wanted.items():
            follower = self._followers.get(query)
            if follower is not None:
                follower.rename(name)
                continue
            follower = self._followers[query] = _Follower(name, self._lookups, self._pace)
            self._start(follower)
        self._publish_all()

    def _start(self, follower: _Follower) -> None:
        """Begin to follow it, or restart."""
        name = follower.name
        task = self._tasks.get(name.query)
        if task is not None:
            task.cancel()
        self._tasks[name.query] = asyncio.create_task(
            self._follow(follower), name=f"follow {name.entry.host}"
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
            before, had_answered = follower.discovered, follower.has_answered
            try:
                delay_s = await follower.look_up()
            except Exception:  # a bug; another answer may work
                log.exception("dns: the lookup of %s failed", follower.name.entry.host)
                delay_s = MAX_BACKOFF_S
            if follower.discovered != before or not had_answered:
                if follower.discovered != before:
                    log.info(
                        "dns: %s has %d endpoints",
                        *(follower.name.entry.host, len(follower.discovered)),
                    )
                self._publish_all()
            await self._sleep(delay_s)

    def _publish_all(self) -> None:
        discovered = [one for f in self._followers.values() for one in f.discovered]
        is_complete = all(follower.has_answered for follower in self._followers.values())
        self._publish(SOURCE, discovered, is_complete)
