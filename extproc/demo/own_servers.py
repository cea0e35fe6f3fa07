"""The user's own servers for `coxswain up`: their number, and duplicates."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from extproc.settings import DiscoverySettings, EndpointSettings
from scraper.discovery.static import Lookup, look_up

PATIENCE_S: Final = 2.0
"""The picker looks a name up for as long as it takes; here it then counts as one server."""

_Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServers:
    """`count` is that of the endpoints: a name with three addresses is three. `different` are
    addresses as they were written; `again` those with the one that was written before."""

    count: int
    different: tuple[str, ...]
    again: tuple[tuple[str, str], ...]


async def own_servers(
    endpoints: Sequence[EndpointSettings], lookup: Lookup = look_up
) -> OwnServers:
    """Look up the names among them as the picker will. Takes two seconds at most."""
    first: dict[_Place, str] = {}
    different, again = [], []
    found = await asyncio.gather(*(_places(endpoint, lookup) for endpoint in endpoints))
    for endpoint, places in zip(endpoints, found, strict=True):
        if places <= first.keys():
            again.append((endpoint.address, first[min(places)]))
        else:
            different.append(endpoint.address)
        for place in places:
            first.setdefault(place, endpoint.address)
    return OwnServers(count=len(first), different=tuple(different), again=tuple(again))


def own_sentence(count: int, discovery: DiscoverySettings) -> str:
    """The sentence about the user's own servers and further sources."""
    sources = [
        *(name.name for name in discovery.dns),
        *(one.address for one in discovery.kubernetes),
    ]
    if discovery.file is not None:
        sources.insert(0, discovery.file)
    named = [f"{count} of your own"] if count or not sources else []
    return f"Servers: {', and '.join([*named, *(f'those in {one}' for one in sources)])}."


async def _places(endpoint: EndpointSettings, lookup: Lookup) -> set[_Place]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            hosts = await lookup(endpoint.host)
    except (OSError, TimeoutError):
        hosts = [endpoint.host.lower()]
    return {(host, endpoint.port) for host in hosts}
