"""The options of the scraper, in one frozen record."""

from dataclasses import dataclass, field

from extproc.runners.probe import ProbeOptions
from scraper.schedule import Cadence
from scraper.turns import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class ScraperOptions(ProbeOptions):
    """Those of each probe, when it scrapes, and how often all of them do. An immediate scrape
    starts at once, but not sooner than `scrape_gap_s` after the previous one."""

    cadence: Cadence = field(default_factory=Cadence)
    pace: Pace = field(default_factory=Pace)
    scrape_gap_s: float = 0.02

    def __post_init__(self) -> None:
        ProbeOptions.__post_init__(self)
        if self.scrape_gap_s <= 0:
            raise ValueError(f"scrape_gap_s must be greater than 0, not {self.scrape_gap_s}")
