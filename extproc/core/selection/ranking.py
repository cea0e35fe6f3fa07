"""Which endpoint next: the one with the largest share of free slots, ties at random.

The ranking is kept up to date as numbers change, so a pick never looks at all endpoints:
endpoints of equal rank share a bucket, and the ranks are kept sorted. In a bucket those with
equal numbers stand together, so that a heavy request asks once for each kind, not for each
endpoint. Slot counts bound how many ranks and kinds there are, whatever the size of the fleet.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from random import Random
from typing import TYPE_CHECKING

from extproc.core.slots.endpoint_slots import can_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from extproc.core.address import Address
    from extproc.core.fleet.endpoint import Endpoint
    from extproc.core.slots.endpoint_slots import EndpointSlots

Rank = tuple[bool, bool, bool, float]
"""Has a free slot, is first choice (fresh and awake), has the model loaded, share of free slots;
larger is better. The share of a full one is what one more request would leave, below 0: the more
slots it has the sooner one is free, and each request beyond them counts against it."""
SlotShape = tuple[int, int]
"""Free slots and slots."""


class Ranking:
    """Ranked endpoints that may be picked. O(ranks and kinds) at worst, never O(endpoints)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ranks: list[Rank] = []
        self._buckets: dict[Rank, dict[SlotShape, list[Address]]] = {}
        self._places: dict[Address, tuple[Rank, SlotShape, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def update(
        self,
        endpoint: Endpoint,
        endpoint_slots: EndpointSlots,
        *,
        is_loaded: bool = True,
        is_open: bool = True,
    ) -> None:
        """Rank an endpoint by its present numbers, or take it out when it may not be picked.

        One that is not open counts as full: its free slots are not for the asking.
        """
        address, slots = endpoint.address, endpoint_slots.slots
        if slots == 0 or not endpoint.is_pickable:
            self.remove(address)
            return
        open_slots = endpoint_slots.open_slots if is_open else 0
        kind = (open_slots, slots)
        share = (open_slots or endpoint_slots.surplus_slots - 1) / slots
        rank = (open_slots > 0, endpoint.is_first_choice, is_loaded, share)
        place = self._places.get(address)
        if place is not None:
            if place[0] == rank and place[1] == kind:
                return
            self.remove(address)
        bucket = self._buckets.get(rank)
        if bucket is None:
            bucket = self._buckets[rank] = {}
            insort(self._ranks, rank)
        group = bucket.setdefault(kind, [])
        self._places[address] = (rank, kind, len(group))
        group.append(address)

    def remove(self, address: Address) -> None:
        """Forget an endpoint; one that is not ranked is no error."""
        place = self._places.pop(address, None)
        if place is None:
            return
        rank, kind, index = place
        bucket = self._buckets[rank]
        group = bucket[kind]
        last = group.pop()
        if last != address:
            group[index] = last
            self._places[last] = (rank, kind, index)
        if group:
            return
        del bucket[kind]
        if not bucket:
            del self._buckets[rank]
            del self._ranks[bisect_left(self._ranks, rank)]

    def best(self, many: int) -> list[Address]:
        """Up to `many` endpoints, best first; those without a free slot come last."""
        chosen: list[Address] = []
        for rank in reversed(self._ranks):
            if len(chosen) == many:
                break
            chosen += self._some_of(list(self._buckets[rank].values()), many - len(chosen))
        return chosen

    def __contains__(self, address: Address) -> bool:
        return address in self._places

    def members(self) -> Iterator[tuple[Address, int]]:
        """Everybody who is ranked, with their slots."""
        return ((address, kind[1]) for address, (_, kind, _) in self._places.items())

    def fallbacks(self, many: int, weight_slots: int) -> list[Address]:
        """Up to `many` endpoints: those whose free slots hold that weight, then the best."""
        if weight_slots == 1:
            return self.best(many)
        chosen = dict.fromkeys(self.free(many, weight_slots))
        chosen.update(dict.fromkeys(self.best(many)))
        return list(chosen)[:many]

    def free(self, many: int, weight_slots: int) -> list[Address]:
        """Up to `many` endpoints whose free slots hold that weight, best first."""
        chosen: list[Address] = []
        for rank in reversed(self._ranks):
            if not rank[0] or len(chosen) == many:
                break
            bucket = self._buckets[rank]
            fitting = [group for kind, group in bucket.items() if can_fit(weight_slots, *kind)]
            chosen += self._some_of(fitting, many - len(chosen))
        return chosen

    def best_for(self, weight_slots: int) -> Address | None:
        """The best endpoint whose free slots hold that weight, or None."""
        for rank in reversed(self._ranks):
            if not rank[0]:
                break
            bucket = self._buckets[rank]
            fitting = [group for kind, group in bucket.items() if can_fit(weight_slots, *kind)]
            if fitting:
                return self._one_of(fitting)
        return None

    def _one_of(self, groups: Sequence[Sequence[Address]]) -> Address:
        """A random member of the groups."""
        if len(groups) == 1:
            return groups[0][int(self._random.random() * len(groups[0]))]
        return self._some_of(groups, 1)[0]

    def _some_of(self, groups: Sequence[Sequence[Address]], many: int) -> list[Address]:
        """Up to `many` members of the groups, in their order, from a random one on."""
        size = sum(map(len, groups))
        if size == 1:
            return [address for group in groups for address in group]
        start = int(self._random.random() * size)
        chosen = []
        for step in range(min(many, size)):
            index = (start + step) % size
            for group in groups:
                if index < len(group):
                    chosen.append(group[index])
                    break
                index -= len(group)
        return chosen
