"""Slots that are reserved for a queued request, and which other requests may use them."""

from extproc.core.objective import Criticality
from extproc.core.slots.endpoint_slots import EndpointSlots, can_fit


class Reservation:
    """The free slots of `pool` are reserved for a queued request until they suffice."""

    __slots__ = ("criticality", "is_exclusive", "pool", "ticket_id", "weight_slots")

    def __init__(
        self, pool: EndpointSlots, ticket_id: int, criticality: Criticality, weight_slots: int
    ) -> None:
        self.pool = pool
        self.ticket_id = ticket_id
        self.criticality = criticality
        self.weight_slots = weight_slots
        self.is_exclusive = False
        """Whether not even a request of higher criticality may use the slots."""

    def can_be_met(self) -> bool:
        """Whether there will be enough slots once our own leases have ended."""
        return self.pool.can_ever_fit(self.weight_slots)

    def may_be_bypassed(self, criticality: Criticality, weight_slots: int) -> bool:
        """Whether a request of that criticality and weight may use the slots."""
        if criticality >= self.criticality or (self.is_exclusive and self.can_be_met()):
            return False
        return can_fit(weight_slots, self.pool.free_slots, self.pool.slots)
