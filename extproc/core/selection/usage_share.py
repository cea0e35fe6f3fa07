"""How evenly the fleet is used: the recent slot assignments of each endpoint, per slot.

It limits affinity: an endpoint with clearly more than its fair share is no longer preferred for its
cache, so that requests with a common beginning spread over endpoints instead of filling one.
"""

from collections.abc import Iterable

from extproc.core.address import Address
from extproc.core.learner import Learner

HALF_LIFE_S = 60.0
TOLERANCE = 1.4
"""The multiple of its fair share beyond which an endpoint's cache no longer counts."""
SLACK = 3.0
"""Requests on top of it: if there are few, chance alone makes shares uneven."""


class UsageShare(Learner):
    """Assigned slots by endpoint, with a half-life of a minute. Every call is O(1)."""

    def __init__(self) -> None:
        self._recent: dict[Address, tuple[float, float]] = {}

    def assigned(self, address: Address, weight_slots: int, now: float) -> None:
        self._recent[address] = (self.recent_slots(address, now) + weight_slots, now)

    def recent_slots(self, address: Address, now: float) -> float:
        """The slots that were recently assigned to it."""
        amount, at = self._recent.get(address, (0.0, now))
        return float(amount * 0.5 ** ((now - at) / HALF_LIFE_S))

    def forget(self, address: Address) -> None:
        self._recent.pop(address, None)

    def fair_share(self, members: Iterable[tuple[Address, int]], now: float) -> float:
        """The mean recent use of one slot, over endpoints with their slots. O(members)."""
        assigned = slots = 0.0
        for address, member_slots in members:
            assigned += self.recent_slots(address, now)
            slots += member_slots
        return assigned / slots if slots else 0.0

    def is_overused(self, address: Address, slots: int, fair_share: float, now: float) -> bool:
        """Whether it got more than chance explains."""
        return self.recent_slots(address, now) > TOLERANCE * fair_share * slots + SLACK
