"""The options of the scraper, in one frozen record."""

from dataclasses import dataclass, field

from extproc.runners.probe import ProbeOptions
from scraper.schedule import Cadence


@dataclass(frozen=True, slots=True, kw_only=True)
class ScraperOptions(ProbeOptions):
    """Those of each probe, and when it scrapes. An immediate scrape starts at once, but not sooner
    than `scrape_gap_s` after the previous one. At most `max_per_s` begin in a second, of all
    endpoints."""

    cadence: Cadence = field(default_factory=Cadence)
    scrape_gap_s: float = 0.02
    max_per_s: float = 500.0

    def __post_init__(self) -> None:
        ProbeOptions.__post_init__(self)
        for name in ("scrape_gap_s", "max_per_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be greater than 0, not {getattr(self, name)}")
