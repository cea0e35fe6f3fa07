"""The options of the scraper, in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass, field

from scraper.llama.client import Timeouts
from scraper.probe.idle_sleep import SleepTrial
from scraper.schedule import Cadence


@dataclass(frozen=True, slots=True, kw_only=True)
class ScraperOptions:
    """`patience_s` is how long one look waits for /slots before it reports that it is slow;
    the question itself lives on for `timeouts.slots_read_s`. /props is asked again after
    `props_every_looks` looks, and whenever something hints at another process. A poked
    endpoint is looked at once more at once, but not sooner than `poke_gap_s` after the last
    look."""

    cadence: Cadence = field(default_factory=Cadence)
    timeouts: Timeouts = field(default_factory=Timeouts)
    sleep_trial: SleepTrial = field(default_factory=SleepTrial)
    patience_s: float = 1.0
    props_every_looks: int = 100
    poke_gap_s: float = 0.02

    def __post_init__(self) -> None:
        if self.patience_s <= 0 or self.poke_gap_s <= 0:
            raise ValueError("patience_s and poke_gap_s must be greater than 0")
        if self.props_every_looks < 1:
            raise ValueError(f"props_every_looks must be at least 1, not {self.props_every_looks}")
