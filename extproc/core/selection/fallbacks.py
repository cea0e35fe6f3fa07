"""Which endpoints Envoy may try after the picked one."""

from dataclasses import dataclass

from extproc.core.address import Address
from extproc.core.selection.ranking import Ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallbacks:
    """At most `limit` further endpoints."""

    limit: int = 2

    def beside(self, address: Address, ranking: Ranking, weight_slots: int) -> tuple[Address, ...]:
        """Those for a request of that weight if `address` is picked: with enough free slots first,
        then the best."""
        others = ranking.fallbacks(1 + self.limit, weight_slots)
        if address in others:
            others.remove(address)
        return tuple(others[: self.limit])

    def passing(self, ranking: Ranking) -> list[Address]:
        """The endpoints for a request that takes no slot, best first: one, and its fallbacks."""
        return ranking.best(1 + self.limit)
