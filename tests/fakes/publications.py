"""Takes what sources of endpoints publish, and lets a test wait for what it wants to see."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from scraper.discovery.discovered_endpoint import DiscoveredEndpoint


class Publications:
    """Call it as `publish`. `addresses` is what stands now, of all sources together."""

    def __init__(self) -> None:
        self.count = 0
        self.is_complete = False
        self.discovered: dict[str, Sequence[DiscoveredEndpoint]] = {}
        self._changed = asyncio.Event()

    def __call__(
        self, source: str, discovered: Sequence[DiscoveredEndpoint], is_complete: bool
    ) -> None:
        self.count += 1
        self.discovered[source] = discovered
        self.is_complete = is_complete
        self._changed.set()

    @property
    def addresses(self) -> set[str]:
        return {str(one.spec.address) for all_ in self.discovered.values() for one in all_}

    def one(self, address: str) -> DiscoveredEndpoint:
        """The nomination of this address."""
        every = (one for all_ in self.discovered.values() for one in all_)
        return next(one for one in every if str(one.spec.address) == address)

    async def are(self, *addresses: str) -> None:
        """Wait until exactly these addresses are named."""
        while self.addresses != set(addresses):
            await self.changed()

    async def were_complete(self) -> None:
        """Wait until a source says that this is all."""
        while not self.is_complete:
            await self.changed()

    async def changed(self) -> None:
        """Wait for the next publication."""
        self._changed.clear()
        await self._changed.wait()
