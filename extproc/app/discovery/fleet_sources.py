"""Where the fleet comes from, and what follows it. The settings name a file, DNS and Kubernetes.

settings, file, DNS   Discovery       ─┐             ┌─ ScrapeTargets   the scraper
operators             AddedEndpoints  ─┼─▶ the core ─┤
agents                AgentsService   ─┘             └─ ServedCluster   Envoy's CAs
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from extproc.admin.agents import AgentsDependencies, AgentsService
from extproc.app import options
from extproc.app.discovery.admin_endpoints import AddedEndpoints
from extproc.app.discovery.discovery import AGENTS, Discovery
from extproc.app.discovery.scrape_targets import ScrapeTargets
from extproc.app.discovery.served_cluster import ServedCluster
from extproc.app.live_settings import LiveSettings
from extproc.app.security.secret_reloader import SecretReloader
from extproc.core.address import Address
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.observation import Observation
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.runners.target import EndpointTarget
from extproc.security.trust import Trust
from extproc.settings import Settings
from extproc.xds.clusters import WriteCluster
from scraper.discovery.discovered_endpoint import DiscoveredEndpoint
from scraper.loop import Scraper


class FleetSources:
    """Belongs to one event loop."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        scraper: Scraper,
        settings: LiveSettings,
        *,
        observe: Callable[[Observation], None],
        on_known: Callable[[], None],
        publish_cluster: Callable[[Mapping[str, Trust], WriteCluster], None],
        own_ports: Callable[[], Iterable[int]],
    ) -> None:
        """`observe` receives what agents report. `on_known` is called once, when the fleet may be
        published. At `own_ports` this picker listens: no endpoint can be there.

        Raises `SettingsError` where an API key is not where the settings say.
        """
        self._dispatcher = dispatcher
        self._scraper = scraper
        self._settings = settings
        self._own_ports = own_ports
        self.on_members: Callable[[], None] = _nothing
        """Called when endpoints came or went, before any of them gets a request."""
        served_cluster = ServedCluster(settings.present, publish_cluster)
        self.agents = AgentsService(
            AgentsDependencies(
                dispatcher=dispatcher,
                clock=time.monotonic,
                publish=self._set_reported,
                observe=observe,
                reporting_changed=self.membership_changed,
                address_rejection=self.address_rejection,
                others_naming=self._others_naming,
                is_scraped_by_picker=lambda address: self.target(address) is not None,
            ),
            settings.present.agents,
        )
        self.on_objects: Callable[[], None] = _nothing
        """Called when other objectives and splits were written for the pools: see `below`."""
        self._members = Discovery(
            settings.present,
            self._set_members,
            on_known,
            self._is_reported,
            self._objects_written,
        )
        self._targets = ScrapeTargets(dispatcher.fleet, self._members, scraper, served_cluster)
        self.added = AddedEndpoints(self._members.publish, lambda: settings.present.admin)
        self._secret_reloader = SecretReloader(
            lambda: self._members.secrets | self.added.secrets, settings.refresh
        )

    def start(self) -> None:
        """Begin to look for endpoints. Call it in the event loop."""
        self._members.start()
        self._secret_reloader.start()

    async def aclose(self) -> None:
        """Look for no more; the fleet does not change. Agents are left when their port closes."""
        await self._secret_reloader.aclose()
        await self._members.aclose()
        self._targets.stop()

    # Settings

    async def renew(self, settings: Settings) -> Sequence[str]:
        """Follow other settings; returns those that differ. Raises `SettingsError` before any
        change."""
        news = await self._members.renew(settings)
        await self.added.refresh()
        self.agents.renew(settings.agents)
        return news

    async def rehearse(self, settings: Settings) -> Sequence[str]:
        """What `renew` would return; raises `SettingsError` where that would."""
        return await self._members.rehearse(settings)

    async def reread(self) -> Sequence[str]:
        """Reload the files with keys and CAs."""
        await self.added.refresh()
        return await self._members.refresh()

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems of the sources, as text; empty without problems."""
        return (*self._members.problems, *self.added.problems)

    def _objects_written(self) -> None:
        self.on_objects()

    def below(self, settings: Settings) -> Settings:
        """These settings with the objectives and splits of the pools' own objects."""
        return self._members.below(settings)

    # Scrapes

    def target(self, address: Address) -> EndpointTarget | None:
        """How to scrape that endpoint; None if the picker does not."""
        endpoint = self._dispatcher.fleet.get(address)
        return None if endpoint is None else self._members.target(endpoint.spec)

    def scrape_now(self, address: Address) -> None:
        """Request a scrape now from our scraper or the agent."""
        self._scraper.scrape_now(address)
        self.agents.scrape_now(address)

    def scrape_all(self) -> None:
        """Request a scrape of every endpoint now."""
        for endpoint in self._dispatcher.fleet:
            self.scrape_now(endpoint.address)

    def membership_changed(self) -> None:
        """Follow the fleet soon. Never blocks, never raises."""
        self._targets.changed()

    # What may be an endpoint

    def address_rejection(self, address: Address, peer: str) -> str:
        """Why a caller at the IP address `peer` may not report this one; empty if it may."""
        policy = options.address_policy(self._settings.present, self._own_ports())
        return policy.rejection(address, peer)

    def _others_naming(self, address: Address) -> list[str]:
        """The sources besides agents that name it; what they say goes before what agents do."""
        return [each for each in self._dispatcher.fleet.sources_of(address) if each != AGENTS]

    def _is_reported(self, address: Address) -> bool:
        return self.agents.registry.is_reporting(address) and not self._others_naming(address)

    def _set_reported(self, specs: list[EndpointSpec]) -> None:
        is_complete = len(specs) >= self._settings.present.agents.expected
        agents = self.agents.registry
        discovered = [
            DiscoveredEndpoint(spec=spec, target=None, trust=agent.trust)
            for spec in specs
            if (agent := agents.get(spec.address)) is not None
        ]
        self._members.publish(AGENTS, discovered, is_complete)

    def _set_members(self, source: str, specs: list[EndpointSpec]) -> None:
        self._dispatcher.set_members(source, specs, time.monotonic())
        self.on_members()
        self._targets.follow()  # a key may have changed where no address did


def _nothing() -> None:
    """The default of a callback."""
