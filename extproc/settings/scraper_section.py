"""Settings of scraping and of the slots' ledger."""

from typing import Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from extproc.core.fleet.health import HealthOptions
from extproc.core.slots.ledger import DrainingCaps
from extproc.runners.timeouts import Timeouts
from extproc.settings.section import Section
from extproc.settings.values import PathPrefix, PositiveCount, Seconds, Share, SomeSeconds
from scraper.options import ScraperOptions
from scraper.schedule import Cadence
from scraper.turns import Pace


class LedgerSettings(Section):
    """How leased slots are counted."""

    draining_cap_s: Seconds = 10.0
    """Seconds for which the slot of a client that left stays leased, unless a scrape shows it free
    earlier."""
    blind_draining_cap_s: Seconds = 1.0
    """The same, for a server that does not report its slots."""

    @property
    def draining_caps(self) -> DrainingCaps:
        """The same for the core."""
        return DrainingCaps(reported_s=self.draining_cap_s, blind_s=self.blind_draining_cap_s)


class ScraperSettings(Section):
    """How Coxswain scrapes the servers."""

    path_prefix: PathPrefix = ""
    """The --api-prefix of the servers, such as `/llama`. Scrapes and Envoy's health checks use it;
    agents have it in --llama."""
    fast_interval_s: SomeSeconds = 0.2
    """Seconds between two scrapes while a server has foreign slots or is starting."""
    slow_interval_s: SomeSeconds = 2.0
    """Seconds between two scrapes while Coxswain's own requests account for all busy slots."""
    max_per_s: PositiveCount = 500
    """The most scrapes a second, of all servers together. With more servers each is scraped less
    often, and `stale_after_s` grows with it: with 10,000 each 20 s."""
    jitter: Share = 0.1
    """The share by which each interval varies."""
    connect_timeout_s: SomeSeconds = 1.0
    """Seconds to wait for a connection to a server."""
    read_timeout_s: SomeSeconds = 3.0
    """Seconds to wait for a response to any path except /slots."""
    slots_read_timeout_s: SomeSeconds = 30.0
    """Seconds to wait for /slots, which a long prefill delays."""
    write_timeout_s: SomeSeconds = 2.0
    """Seconds to wait until a request is sent."""
    pool_timeout_s: SomeSeconds = 2.0
    """Seconds to wait for a free connection of the pool."""
    slow_after_s: SomeSeconds = 1.0
    """Seconds after which an unanswered /slots counts as slow. A slow server is not down."""
    stale_after_s: SomeSeconds = 6.0
    """The age in seconds from which an observation is stale: its server is then a backup only."""
    failures_to_down: PositiveCount = 3
    """The number of failed scrapes in a row after which a server is down."""

    @property
    def health(self) -> HealthOptions:
        """What the core makes of scrapes. The age from which observations are stale grows with each
        endpoint, where they are scraped less often than each `slow_interval_s`."""
        return HealthOptions(
            failures_to_down=self.failures_to_down,
            stale_after_s=self.stale_after_s,
            stale_per_endpoint_s=self.stale_after_s / self.slow_interval_s / self.max_per_s,
        )

    def for_scraper(self, *, loads_models: bool) -> ScraperOptions:
        """The same for the scraper, which reads no settings as it also runs in agents.
        `loads_models`: this picker loads models on routers that do not."""
        return ScraperOptions(
            cadence=Cadence(
                fast_s=self.fast_interval_s, slow_s=self.slow_interval_s, jitter=self.jitter
            ),
            pace=Pace(max_per_s=self.max_per_s),
            timeouts=Timeouts(
                connect_s=self.connect_timeout_s,
                read_s=self.read_timeout_s,
                slots_read_s=self.slots_read_timeout_s,
                write_s=self.write_timeout_s,
                pool_s=self.pool_timeout_s,
            ),
            slow_after_s=self.slow_after_s,
            loads_models=loads_models,
        )

    @model_validator(mode="after")
    def _check_intervals(self) -> Self:
        if self.fast_interval_s > self.slow_interval_s:
            raise PydanticCustomError("order", "fast_interval_s must not exceed slow_interval_s")
        if self.stale_after_s <= self.slow_interval_s:
            raise PydanticCustomError(
                "order", "stale_after_s must exceed slow_interval_s, or all servers are stale"
            )
        return self
