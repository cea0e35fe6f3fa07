"""The health of an endpoint, as scrapes show it.

loading <-> ready <-> degraded <-> asleep; any -> down; down -> any by one good scrape. An endpoint
whose machine can be woken is off where others are down.
`Endpoint.observe` makes the transitions.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Health(Enum):
    LOADING = "loading"
    READY = "ready"
    DEGRADED = "degraded"
    DOWN = "down"
    ASLEEP = "asleep"
    OFF = "off"


SERVING: Final = (Health.READY, Health.DEGRADED, Health.ASLEEP)
"""An endpoint in one of these states responds to requests."""
UNREACHED: Final = (Health.DOWN, Health.OFF)
"""It answers no scrape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """How long scrapes count. An endpoint is down after `failures_to_down` failed ones in a row. An
    observation is stale after `stale_after_s`, or after `stale_per_endpoint_s` for each endpoint of
    the fleet if that is longer."""

    failures_to_down: int = 3
    stale_after_s: float = 6.0
    stale_per_endpoint_s: float = 0.0

    def is_down(self, consecutive_failures: int) -> bool:
        """Whether it is, after this number of failed scrapes in a row."""
        return consecutive_failures >= self.failures_to_down

    def fresh_s(self, endpoints: int) -> float:
        """For how many seconds an observation is fresh, in a fleet of this size."""
        return max(self.stale_after_s, self.stale_per_endpoint_s * endpoints)
