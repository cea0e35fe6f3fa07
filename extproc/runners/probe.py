"""The door for kinds of servers: what the scraper needs of one, a probe for each endpoint.

What a kind cannot show is left out of its observations, and all who read them do without it:

    what                       | where it is left out
    ---------------------------|-----------------------------------------------------------
    how many slots there are   | `slots` is None: the setting counts, else one
    how many of them are busy  | `busy_slots` is None: only our own leases count, nothing is
                               | foreign, and a client that left holds its slot for
                               | `ledger.blind_draining_cap_s`
    the tasks by their numbers | `slot_readings` is empty: the number of busy slots alone proves
                               | that the slot of a client that left is free
    their tokens               | `slot_readings` is empty, `counters` is None: usage is what the
                               | responses say
    which models there are     | `models` is empty: it may get requests for any
    a model that is not loaded | `ModelReading.is_loaded`: loaded ones are preferred
    which APIs it serves       | `apis` is None: all of them
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from extproc.core.observation import Observation
from extproc.runners.target import EndpointTarget
from extproc.runners.timeouts import Timeouts


class ScrapePriority(Enum):
    """How soon the ledger needs the next scrape of an endpoint."""

    IDLE = "idle"  # no leases and no foreign slots: no change is expected
    STEADY = "steady"  # it has leases, and they account for every busy slot
    HIGH = "high"  # it has foreign slots or a draining lease: scrape often


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepTrial:
    """How an undeclared server is given the chance to fall asleep, in seconds."""

    linger_s: float = 30.0
    trial_s: float = 900.0

    def __post_init__(self) -> None:
        if not 0 <= self.linger_s <= self.trial_s:
            raise ValueError(
                f"0 <= linger_s <= trial_s must hold, not {self.linger_s}, {self.trial_s}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """`slow_after_s` is how long one scrape waits for a count of slots before it reports that it is
    slow; the request itself continues for `timeouts.slots_read_s`. What identifies a server is
    requested again after `props_every_scrapes` scrapes, and when something hints at another
    process. `loads_models` says that this process loads models on routers that do not: then one
    without a loaded model is no issue."""

    timeouts: Timeouts = field(default_factory=Timeouts)
    sleep_trial: SleepTrial = field(default_factory=SleepTrial)
    slow_after_s: float = 1.0
    props_every_scrapes: int = 100
    loads_models: bool = False

    def __post_init__(self) -> None:
        if self.slow_after_s <= 0:
            raise ValueError(f"slow_after_s must be greater than 0, not {self.slow_after_s}")
        if self.props_every_scrapes < 1:
            raise ValueError(
                f"props_every_scrapes must be at least 1, not {self.props_every_scrapes}"
            )


class Probe(Protocol):
    """The known state of one server. One task at a time calls it."""

    async def scrape(self, priority: ScrapePriority) -> Observation:
        """Ask what is due. It takes `slow_after_s` and a few short responses at most, and raises
        nothing for an error of the server or the network, but `OwnFaultError`."""

    def set_leaving(self, models: frozenset[str]) -> None:
        """These of its models are about to be unloaded by this process."""

    async def aclose(self) -> None:
        """Cancel what is open and close the connections."""


class OpenProbe(Protocol):
    """Makes the probe of one server; sends nothing yet. Raises `OSError` where no certificates
    can be read for a TLS endpoint."""

    def __call__(
        self,
        target: EndpointTarget,
        options: ProbeOptions,
        clock: Callable[[], float],
        *,
        lost_s: Callable[[float], float],
        wants_counters: Callable[[], bool],
    ) -> Probe:
        """`lost_s` says for how many seconds since a moment this process was blocked.
        `wants_counters` says whether the next scrape should have the server's own counters."""
        ...
