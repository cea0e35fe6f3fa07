"""The slots of one endpoint, counted by use, for display."""

from dataclasses import dataclass

from extproc.core.fleet.endpoint import Endpoint
from extproc.core.slots.endpoint_slots import EndpointSlots


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCounts:
    """`idle` slots are available to the next request. `unusable` slots are free, but their server
    is not pickable: down or loading, drained, disabled, leaving, or unknown to Envoy."""

    total: int
    leased: int
    foreign: int
    idle: int
    unusable: int


def count_slots(endpoint: Endpoint, endpoint_slots: EndpointSlots) -> SlotCounts:
    """Count the slots of an endpoint. O(1)."""
    free_slots = endpoint_slots.free_slots
    idle = free_slots if endpoint.is_pickable else 0
    return SlotCounts(
        total=endpoint_slots.slots,
        leased=endpoint_slots.leased_slots,
        foreign=endpoint_slots.foreign_slots,
        idle=idle,
        unusable=free_slots - idle,
    )
