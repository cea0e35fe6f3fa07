"""Keeps the scraper's targets and Envoy's CAs consistent with the fleet."""

import asyncio
import logging

from extproc.app.discovery.discovery import Discovery
from extproc.app.discovery.served_cluster import ServedCluster
from extproc.core.fleet.membership import Fleet
from extproc.runners.target import EndpointTarget
from scraper.loop import Scraper

log = logging.getLogger("coxswain.discovery")


class ScrapeTargets:
    """Belongs to one event loop. An update is O(endpoints)."""

    def __init__(
        self, fleet: Fleet, members: Discovery, scraper: Scraper, served_cluster: ServedCluster
    ) -> None:
        self._fleet = fleet
        self._members = members
        self._scraper = scraper
        self._served_cluster = served_cluster
        self._due: asyncio.Handle | None = None
        self._blind: frozenset[EndpointTarget] = frozenset()
        """Endpoints that cannot be scraped; logged once."""
        self._is_stopped = False

    def stop(self) -> None:
        """Make no further changes."""
        self._is_stopped = True
        if self._due is not None:
            self._due.cancel()

    def changed(self) -> None:
        """The fleet is another one: follow in the event loop's next turn. However many endpoints
        leave in one turn, the fleet is gone through once. Never blocks, never raises."""
        if self._due is None and not self._is_stopped:
            self._due = asyncio.get_running_loop().call_soon(self.follow)

    def follow(self) -> None:
        """Scrape exactly the members of the fleet, as their sources say.

        An endpoint that has no source any more is scraped until its last request ends.
        """
        self._due = None
        if self._is_stopped:
            return
        fleet, scraper = self._fleet, self._scraper
        self._served_cluster.follow(self._members.trusts(), fleet.membership().members)
        for scraped in scraper.targets:
            if scraped.address not in fleet:
                scraper.forget(scraped.address)
        blind = set()
        for endpoint in fleet:
            if endpoint.is_removed:
                continue
            target = self._members.target(endpoint.spec)
            if target is None:
                scraper.forget(endpoint.address)
            elif not self._watch(target):
                blind.add(target)
        self._blind = frozenset(blind)

    def _watch(self, target: EndpointTarget) -> bool:
        try:
            self._scraper.watch(target)
        except OSError as error:
            if target not in self._blind:
                reason = error.strerror or type(error).__name__
                log.error("%s cannot be scraped: %s: %s", target.address, target.ca_file, reason)
            return False
        return True
