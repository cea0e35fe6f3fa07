"""The health of an endpoint, as scrapes show it.

loading <-> ready <-> degraded <-> asleep; any -> down; down -> any by one good scrape. An endpoint
whose machine can be woken is off where others are down.
`Endpoint.observe` makes the transitions.
"""

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
