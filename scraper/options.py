"""The options of the scraper, in one frozen record."""

from dataclasses import dataclass, field

from scraper.llama.client import Timeouts
from scraper.probe.idle_sleep import SleepTrial
from scraper.schedule import Cadence


@dataclass(frozen=True, slots=True, kw_only=True)
class ScraperOptions:
    """`slow_after_s` is how long one scrape waits for /slots before it reports that it is slow;
    the request itself continues for `timeouts.slots_read_s`. /props is requested again after
    `props_every_scrapes` scrapes, and when something hints at another process. An immediate
    scrape starts at once, but not sooner than `scrape_gap_s` after the previous one.
    `loads_models` says that this process loads models on routers that do not: then one without a
    loaded model is no issue."""

    cadence: Cadence = field(default_factory=Cadence)
    timeouts: Timeouts = field(default_factory=Timeouts)
    sleep_trial: SleepTrial = field(default_factory=SleepTrial)
    slow_after_s: float = 1.0
    props_every_scrapes: int = 100
    scrape_gap_s: float = 0.02
    loads_models: bool = False

    def __post_init__(self) -> None:
        if self.slow_after_s <= 0 or self.scrape_gap_s <= 0:
            raise ValueError("slow_after_s and scrape_gap_s must be greater than 0")
        if self.props_every_scrapes < 1:
            raise ValueError(
                f"props_every_scrapes must be at least 1, not {self.props_every_scrapes}"
            )
