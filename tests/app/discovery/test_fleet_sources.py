"""Claims about extproc/app/discovery/fleet_sources.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random

import pytest

from extproc.admin.dependencies import NewEndpoint
from extproc.app.discovery.discovery import SETTINGS
from extproc.app.discovery.fleet_sources import FleetSources
from extproc.app.live_settings import LiveSettings
from extproc.core.address import Address
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.settings import Settings
from scraper.loop import Scraper
from tests.fakes.picker import until

LISTED, ADDED = Address("127.0.0.1", 1), Address("127.0.0.1", 2)
OWN_PORT = 7001


class World:
    """The sources of one listed server, and what follows them. Nobody listens there."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher(Random(0))
        self.scraper = Scraper(sink=lambda _: None)
        self.seen: list[tuple[list[Address], list[Address]]] = []
        """At each announcement: the fleet, and what is scraped."""
        self.is_known = False
        settings = Settings.model_validate({"endpoints": [str(LISTED)]})
        self.settings = LiveSettings(settings, self._renew, self._renew, self._reread)
        self.sources = FleetSources(
            self.dispatcher,
            self.scraper,
            self.settings,
            observe=lambda _: None,
            on_known=self._set_known,
            publish_cluster=lambda *_: None,
            own_ports=lambda: (OWN_PORT,),
        )
        self.sources.on_members = lambda: self.seen.append((self.fleet, self.scraped))

    @property
    def fleet(self) -> list[Address]:
        return sorted(endpoint.address for endpoint in self.dispatcher.fleet)

    @property
    def scraped(self) -> list[Address]:
        return sorted(target.address for target in self.scraper.targets)

    def _set_known(self) -> None:
        self.is_known = True

    async def _renew(self, settings: Settings) -> tuple[str, ...]:
        return tuple(await self.sources.renew(settings))

    async def _reread(self) -> tuple[str, ...]:
        return tuple(await self.sources.reread())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    world.sources.start()
    await until(lambda: world.is_known)
    yield world
    await world.sources.aclose()
    await world.scraper.aclose()


async def test_endpoints_are_announced_before_they_are_scraped(world: World) -> None:
    """Who listens sees the new fleet, and none of its endpoints has had a request."""
    assert world.seen[0] == ([LISTED], [])
    assert world.scraped == [LISTED]
    await world.sources.added.add(NewEndpoint(address=ADDED, host=ADDED.host))
    assert world.seen[-1] == ([LISTED, ADDED], [LISTED])
    assert world.scraped == [LISTED, ADDED]


async def test_other_settings_leave_what_operators_added(world: World) -> None:
    await world.sources.added.add(NewEndpoint(address=ADDED, host=ADDED.host))
    assert SETTINGS in world.dispatcher.fleet.sources_of(LISTED)
    news = await world.sources.renew(Settings())
    assert list(news) == ["endpoints"]
    await until(lambda: world.fleet == [ADDED])
    world.sources.membership_changed()
    await until(lambda: world.scraped == [ADDED])


async def test_no_endpoint_is_where_the_picker_listens(world: World) -> None:
    """Neither at a port that it got, nor at one of its settings."""
    listed = world.settings.present.listen.admin
    for address in (Address(LISTED.host, OWN_PORT), Address.parse(listed)):
        assert world.sources.address_rejection(address, LISTED.host)
    assert world.sources.address_rejection(ADDED, LISTED.host) == ""


async def test_after_the_end_nothing_follows(world: World) -> None:
    await world.sources.aclose()
    world.dispatcher.set_members(SETTINGS, [], 0.0)
    world.sources.membership_changed()
    assert world.fleet == [] and world.scraped == [LISTED]
