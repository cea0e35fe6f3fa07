"""Claims about extproc/app/discovery/scrape_targets.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from extproc.app.discovery.discovery import Discovery
from extproc.app.discovery.scrape_targets import ScrapeTargets
from extproc.app.discovery.served_cluster import ServedCluster
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.membership import Fleet, Membership
from extproc.runners.target import EndpointTarget
from extproc.settings import Settings
from scraper.discovery.discovered_endpoint import DiscoveredEndpoint
from scraper.loop import Scraper


class CountingFleet(Fleet):
    """Counts how often all of it was gone through."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def membership(self) -> Membership:
        self.passes += 1
        return super().membership()


class World:
    """A fleet of servers on a port where nobody listens, and what scrapes them."""

    def __init__(self) -> None:
        self.fleet = CountingFleet()
        self.members = Discovery(Settings(), self._set_members, lambda: None)
        self.scraper = Scraper(sink=lambda _: None)
        served_cluster = ServedCluster(Settings(), lambda *_: None)
        self.watched = ScrapeTargets(self.fleet, self.members, self.scraper, served_cluster)

    def _set_members(self, source: str, specs: list[EndpointSpec]) -> None:
        self.fleet.set_members(source, specs)

    def name(self, count: int, ca_file: str | None = None) -> None:
        """Name so many servers; the first has these CAs."""
        discovered = []
        for port in range(1, count + 1):
            address = Address("127.0.0.1", port)
            ca_file, file = None, ca_file
            target = EndpointTarget(address=address, is_tls=file is not None, ca_file=file)
            discovered.append(DiscoveredEndpoint(spec=EndpointSpec(address=address), target=target))
        self.members.publish("file", discovered, True)

    @property
    def ports(self) -> list[int]:
        return sorted(target.address.port for target in self.scraper.targets)

    async def aclose(self) -> None:
        self.watched.stop()
        await self.scraper.aclose()


async def test_many_changes_in_one_turn_are_followed_once() -> None:
    """A thousand servers that leave together held up the picker for a quarter of a minute."""
    world = World()
    world.name(3)
    for _ in range(100):
        world.watched.changed()
    assert world.ports == [] and world.fleet.passes == 0
    await asyncio.sleep(0)
    assert world.ports == [1, 2, 3] and world.fleet.passes == 1
    world.watched.changed()
    await asyncio.sleep(0)
    assert world.fleet.passes == 2
    await world.aclose()


async def test_one_that_cannot_be_scraped_costs_no_other_its_scrapes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its CAs are gone since they were read; that is told once, not at each change."""
    world = World()
    world.name(3, ca_file=str(tmp_path / "gone.pem"))
    for _ in range(2):
        world.watched.follow()
    assert world.ports == [2, 3]
    lines = [line for line in caplog.messages if "scraped" in line]
    assert lines == [
        f"127.0.0.1:1 cannot be scraped: {tmp_path}/gone.pem: No such file or directory"
    ]
    await world.aclose()


async def test_who_leaves_is_scraped_as_before_until_the_last_request_ends() -> None:
    """With its key and its name; and one that only an agent looked at, by nobody."""
    world = World()
    address, reported = Address("127.0.0.1", 1), Address("127.0.0.1", 2)
    target = EndpointTarget(address=address, api_key="sesame", host_name="gpu.example")
    keyed = DiscoveredEndpoint(spec=EndpointSpec(address=address), target=target)
    told = DiscoveredEndpoint(spec=EndpointSpec(address=reported, is_reported=True), target=None)
    world.members.publish("file", [keyed], True)
    world.members.publish("agents", [told], True)
    world.watched.follow()
    for source in ("file", "agents"):
        world.members.publish(source, [], True)
    world.watched.follow()
    assert world.scraper.targets == (target,)
    world.fleet.drop(address)
    world.watched.follow()
    assert world.ports == []
    await world.aclose()


async def test_nothing_changes_once_it_is_stopped() -> None:
    """A last request may end, and its server leave, when the scraper is closed already."""
    world = World()
    world.name(1)
    world.watched.changed()
    await world.aclose()
    world.watched.changed()
    await asyncio.sleep(0)
    assert world.ports == [] and world.fleet.passes == 0
