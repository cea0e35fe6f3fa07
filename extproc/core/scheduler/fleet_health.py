"""The health of the whole fleet as one server would report it: `GET /health` for load balancers."""

import json
from dataclasses import dataclass
from typing import Final

from extproc.core.scheduler.dispatcher import Dispatcher

IDLE: Final = "ok"
BUSY: Final = "no slot available"
"""What llama-server itself said when all of its slots were busy, as long as it counted them."""
UNUSABLE: Final = "error"
OK: Final = 200
UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHealth:
    """The slots of all endpoints that get requests: `idle` ones are available to the next request,
    `processing` ones are in use."""

    idle: int
    processing: int

    @property
    def is_usable(self) -> bool:
        """Whether any endpoint that gets requests has a slot, busy or not."""
        return self.idle + self.processing > 0

    @property
    def http_status(self) -> int:
        """200 if the fleet serves, also while all slots are busy: requests are queued then."""
        return OK if self.is_usable else UNAVAILABLE

    def as_json(self) -> bytes:
        """`status`, `slots_idle` and `slots_processing`."""
        status = UNUSABLE
        if self.is_usable:
            status = IDLE if self.idle else BUSY
        shown = {
            "status": status,
            "slots_idle": self.idle,
            "slots_processing": self.processing,
        }
        return json.dumps(shown).encode()


def fleet_health(dispatcher: Dispatcher) -> FleetHealth:
    """The health of the fleet now. O(endpoints + leases)."""
    idle = processing = 0
    for endpoint in dispatcher.fleet:
        if endpoint.is_pickable:
            counts = dispatcher.slot_counts(endpoint)
            idle += counts.idle
            processing += counts.total - counts.idle
    return FleetHealth(idle=idle, processing=processing)
