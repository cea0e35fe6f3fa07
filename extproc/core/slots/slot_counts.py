"""The slots of one endpoint, counted by use, for display."""

from dataclasses import dataclass

from extproc.core.fleet.endpoint import Endpoint
from extproc.core.slots.endpoint_slots import EndpointSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCounts:
    """`idle` slots are available to the next request. `draining` are the leased ones whose client
    left, while the server may still work. `unusable` slots are not in use, and their server is not
    pickable: down or loading, drained, disabled, leaving, or unknown to Envoy."""

    total: int
    leased: int
    draining: int
    foreign: int
    idle: int
    unusable: int


def count_slots(endpoint: Endpoint, endpoint_slots: EndpointSlots) -> SlotCounts:
    """Count the slots of an endpoint. O(leases of this endpoint).

    A server that is down or loading works for nobody who left, and what the last scrape saw of
    others ended with it: only requests whose client still waits for it count as leased.
    """
    slots, leased = endpoint_slots.slots, endpoint_slots.leased_slots
    foreign, draining = endpoint_slots.foreign_slots, endpoint_slots.draining_slots
    free = endpoint_slots.free_slots
    if not endpoint.is_serving:
        leased, draining, foreign = leased - draining, 0, 0
        free = max(0, slots - leased)
    idle = free if endpoint.is_pickable else 0
    return SlotCounts(
        total=slots,
        leased=leased,
        draining=draining,
        foreign=foreign,
        idle=idle,
        unusable=free - idle,
    )
