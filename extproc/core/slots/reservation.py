"""Slots that are reserved for a queued request, and which other requests may use them.

It needs more slots than are free, or more tokens of the context that they share.
"""

from extproc.core.objective import Criticality
from extproc.core.slots.endpoint_slots import EndpointSlots, can_fit
from extproc.core.slots.token_demand import TokenDemand


class Reservation:
    """The free slots of `pool` are reserved for a queued request until they suffice."""

    __slots__ = ("criticality", "demand", "is_exclusive", "pool", "ticket_id", "weight_slots")

    def __init__(
        self,
        pool: EndpointSlots,
        ticket_id: int,
        criticality: Criticality,
        weight_slots: int,
        demand: TokenDemand | None = None,
    ) -> None:
        self.pool = pool
        self.ticket_id = ticket_id
        self.criticality = criticality
        self.weight_slots = weight_slots
        self.demand = demand
        """As expected when it was reserved."""
        self.is_exclusive = False
        """Whether not even a request of higher criticality may use the slots."""

    def can_be_met(self) -> bool:
        """Whether there will be enough of both once our own leases have ended."""
        return self.pool.can_ever_fit(self.weight_slots, self.demand)

    @property
    def lacks_tokens(self) -> bool:
        """Whether enough slots are free, and only the context that they share is too full."""
        pool = self.pool
        return pool.tokens is not None and can_fit(self.weight_slots, pool.free_slots, pool.slots)

    def may_be_bypassed(
        self, criticality: Criticality, weight_slots: int, demand: TokenDemand | None = None
    ) -> bool:
        """Whether a request of that criticality, weight and demand may use the slots."""
        if criticality >= self.criticality or (self.is_exclusive and self.can_be_met()):
            return False
        return self.pool.fits(weight_slots, demand)
