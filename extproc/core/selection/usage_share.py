"""How evenly the fleet is used: what each endpoint was given lately, for each of its slots.

Affinity yields here: an endpoint that got clearly more than its fair share is no longer
preferred for what it has in its cache, so that a beginning which many requests share spreads
to others instead of filling one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from extproc.core.address import Address

HALF_LIFE_S = 60.0
TOLERANCE = 1.4
"""Times its fair share that an endpoint may be used before its cache counts no more."""
SLACK = 3.0
"""Requests beside it: with few of them chance alone makes shares uneven."""


class UsageShare:
    """Slots given out by endpoint, half forgotten after a minute. Every call is O(1)."""

    def __init__(self) -> None:
        self._given: dict[Address, tuple[float, float]] = {}

    def gave(self, address: Address, weight_slots: int, now: float) -> None:
        self._given[address] = (self.given(address, now) + weight_slots, now)

    def given(self, address: Address, now: float) -> float:
        """What it was given lately."""
        amount, at = self._given.get(address, (0.0, now))
        return float(amount * 0.5 ** ((now - at) / HALF_LIFE_S))

    def forget(self, address: Address) -> None:
        self._given.pop(address, None)

    def fair_share(self, members: Iterable[tuple[Address, int]], now: float) -> float:
        """Of endpoints and their slots: what one slot was given on average. O(members)."""
        given = slots = 0.0
        for address, many in members:
            given += self.given(address, now)
            slots += many
        return given / slots if slots else 0.0

    def is_overused(self, address: Address, slots: int, fair_share: float, now: float) -> bool:
        """Whether it got more than may be put down to chance."""
        return self.given(address, now) > TOLERANCE * fair_share * slots + SLACK
