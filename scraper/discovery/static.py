"""Endpoints from a list, whose host names are resolved once.

Each name is looked up as this machine does it (hosts file included) until it has addresses,
and keeps those as long as it is listed; `dns.py` is for names that move. A name with several
addresses is that many endpoints, but its IPv6 addresses count only where it has no others: they
are most likely the same servers once more, whose slots would be given away twice.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from extproc.core.address import AddressError, is_ip
from scraper.discovery.discovered_endpoint import (
    DiscoveredEndpoint,
    EndpointEntry,
    Publish,
    discover,
)

RETRY_S = 2.0
LOOKUPS_AT_ONCE = 2
"""Each lookup occupies a thread, maybe for many seconds."""

Lookup: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""The IP addresses of a name; raises `OSError` when it has none."""

log = logging.getLogger("coxswain.discovery")


async def look_up(host: str) -> list[str]:
    """Resolve with this machine's resolver."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(f"{host!r} is not a host name") from None
    return of_one_kind(list(dict.fromkeys(str(entry[4][0]) for entry in found)))


def of_one_kind(ips: Sequence[str]) -> list[str]:
    """The IPv4 addresses; all of them if there is none."""
    return [ip for ip in ips if ":" not in ip] or list(ips)


class StaticEndpoints:
    """The source named `source`. Calls `publish` with all resolved endpoints at each change.

    Belongs to one event loop; end it with `aclose`.
    """

    def __init__(
        self, source: str, publish: Publish, lookup: Lookup = look_up, retry_s: float = RETRY_S
    ) -> None:
        self._source = source
        self._publish = publish
        self._lookup = lookup
        self._retry_s = retry_s
        self._listings: Sequence[EndpointEntry] = ()
        self._addresses: dict[str, list[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def set(self, entries: Sequence[EndpointEntry]) -> None:
        """Use this list from now on. Publishes known addresses at once, and the others when
        resolved.
        """
        self._listings = tuple(entries)
        hosts = {entry.host for entry in self._listings}
        self._addresses = {h: found for h, found in self._addresses.items() if h in hosts}
        for host in hosts - self._addresses.keys():
            if is_ip(host):
                self._addresses[host] = [host]
        self._stop()
        self._publish_all()
        if self._unknown():
            self._task = asyncio.create_task(
                self._resolve(), name=f"resolve the endpoints of {self._source}"
            )

    async def aclose(self) -> None:
        """Stop all lookups; published endpoints stay."""
        task = self._task
        self._stop()
        if task is not None:
            await asyncio.wait({task})

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _unknown(self) -> list[str]:
        hosts = dict.fromkeys(entry.host for entry in self._listings)
        return [host for host in hosts if host not in self._addresses]

    def _publish_all(self) -> None:
        discovered: list[DiscoveredEndpoint] = []
        for entry in self._listings:
            for ip in self._addresses.get(entry.host, ()):
                try:
                    discovered.append(discover(entry, ip))
                except AddressError as error:
                    log.warning("%s: %s: %s", self._source, entry.host, error)
        self._publish(self._source, discovered, not self._unknown())

    async def _resolve(self) -> None:
        missed: set[str] = set()
        gate = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def resolve(host: str) -> None:
            async with gate:
                try:
                    self._addresses[host] = await self._lookup(host)
                except OSError as error:
                    if host not in missed:
                        missed.add(host)
                        reason = error.strerror or str(error)
                        log.warning(
                            "%s: %s cannot be resolved (%s); retrying every %g s",
                            *(self._source, host, reason, self._retry_s),
                        )
                    return
            self._publish_all()

        while unknown := self._unknown():
            await asyncio.gather(*(resolve(host) for host in unknown))
            if self._unknown():
                await asyncio.sleep(self._retry_s)
