"""The endpoints: where they come from, and how Envoys get them."""

from collections.abc import Callable, Iterable

from extproc.app.assembly.core import CoreAssembly
from extproc.app.discovery.fleet_sources import FleetSources
from extproc.app.live_settings import LiveSettings
from extproc.xds import ClusterDiscovery, EndpointDiscovery


class FleetAssembly:
    """`discovery` and `clusters` serve Envoys, `sources` finds endpoints."""

    def __init__(
        self, core: CoreAssembly, settings: LiveSettings, own_ports: Callable[[], Iterable[int]]
    ) -> None:
        self.discovery = EndpointDiscovery(
            core.dispatcher.fleet.membership,
            core.dispatcher.set_routable,
            set_issue=core.dispatcher.set_envoy_issue,
        )
        self.clusters = ClusterDiscovery(self.discovery.gate, self.discovery.set_refused)
        self.sources = FleetSources(
            core.dispatcher,
            core.scraper,
            settings,
            observe=core.observe,
            on_known=self.discovery.open,
            publish_cluster=self.clusters.publish,
            own_ports=own_ports,
        )

    def membership_changed(self) -> None:
        """Publish the change to Envoys, and scrape who came."""
        self.discovery.membership_changed()
        self.sources.membership_changed()

    def close(self) -> None:
        """End the streams of Envoys."""
        self.clusters.close()
        self.discovery.close()
