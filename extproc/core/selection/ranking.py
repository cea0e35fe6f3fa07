"""Ranks endpoints by their share of free slots, ties at random.

The ranking is updated as numbers change, so a pick never scans all endpoints: endpoints of equal
rank share a bucket, and the ranks are sorted. A bucket groups endpoints with equal slot numbers, so
that a multi-slot request checks once for each shape, not for each endpoint. Slot counts bound the
number of ranks and shapes, independent of the size of the fleet.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.slots.endpoint_slots import EndpointSlots, can_fit

Rank = tuple[bool, bool, bool, float]
"""Has a free slot, is first choice (fresh and awake), has the model loaded, share of free slots;
larger is better. A full endpoint has the share that one more request would leave, below 0: with
more slots one is free sooner, and each request beyond them counts against it. Where the model must
be loaded first, the share counts less the more may have to make way."""
SlotShape = tuple[int, int]
"""Free slots and slots."""
Groups = list[list[Address]]
"""The endpoints of some shapes; none is empty."""


class Ranking:
    """Ranks the pickable endpoints. O(ranks and shapes) at worst, never O(endpoints)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ranks: list[Rank] = []
        self._buckets: dict[Rank, dict[SlotShape, list[Address]]] = {}
        self._positions: dict[Address, tuple[Rank, SlotShape, int]] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def update(
        self,
        endpoint: Endpoint,
        endpoint_slots: EndpointSlots,
        *,
        is_loaded: bool = True,
        is_open: bool = True,
        in_the_way: int = 0,
    ) -> None:
        """Rank an endpoint by its current numbers, or remove it if it is not pickable.

        An endpoint that is not open counts as full: its free slots are not available. `in_the_way`
        are the other models that are loaded there, and their requests, where its model is not.
        """
        address, slots = endpoint.address, endpoint_slots.slots
        if slots == 0 or not endpoint.is_pickable:
            self.remove(address)
            return
        open_slots = endpoint_slots.open_slots if is_open else 0
        shape = (open_slots, slots)
        share = (open_slots or endpoint_slots.surplus_slots - 1) / slots
        if in_the_way and share > 0.0:
            share /= 1 + in_the_way
        rank = (open_slots > 0, endpoint.is_first_choice, is_loaded, share)
        position = self._positions.get(address)
        if position is not None:
            if position[0] == rank and position[1] == shape:
                return
            self.remove(address)
        bucket = self._buckets.get(rank)
        if bucket is None:
            bucket = self._buckets[rank] = {}
            insort(self._ranks, rank)
        group = bucket.setdefault(shape, [])
        self._positions[address] = (rank, shape, len(group))
        group.append(address)

    def remove(self, address: Address) -> None:
        """Remove an endpoint; no error if it is not ranked."""
        position = self._positions.pop(address, None)
        if position is None:
            return
        rank, shape, index = position
        bucket = self._buckets[rank]
        group = bucket[shape]
        last = group.pop()
        if last != address:
            group[index] = last
            self._positions[last] = (rank, shape, index)
        if group:
            return
        del bucket[shape]
        if not bucket:
            del self._buckets[rank]
            del self._ranks[bisect_left(self._ranks, rank)]

    def best(self, limit: int) -> list[Address]:
        """Up to `limit` endpoints, best first; those without a free slot come last."""
        chosen: list[Address] = []
        for rank in reversed(self._ranks):
            if len(chosen) == limit:
                break
            chosen += self._some_of(list(self._buckets[rank].values()), limit - len(chosen))
        return chosen

    def __contains__(self, address: Address) -> bool:
        return address in self._positions

    def members(self) -> Iterator[tuple[Address, int]]:
        """All ranked endpoints with their slots."""
        return ((address, shape[1]) for address, (_, shape, _) in self._positions.items())

    def fallbacks(self, limit: int, weight_slots: int) -> list[Address]:
        """Up to `limit` endpoints: those with enough free slots for that weight, then the best."""
        if weight_slots == 1:
            return self.best(limit)
        chosen = dict.fromkeys(self.free(limit, weight_slots))
        chosen.update(dict.fromkeys(self.best(limit)))
        return list(chosen)[:limit]

    def free(self, limit: int, weight_slots: int) -> list[Address]:
        """Up to `limit` endpoints with enough free slots for that weight, best first."""
        chosen: list[Address] = []
        for rank in reversed(self._ranks):
            if not rank[0] or len(chosen) == limit:
                break
            fitting = _fitting(self._buckets[rank], weight_slots)
            if fitting:
                chosen += self._some_of(fitting, limit - len(chosen))
        return chosen

    def best_for(self, weight_slots: int) -> Address | None:
        """The best endpoint with enough free slots for that weight, or None."""
        for rank in reversed(self._ranks):
            if not rank[0]:
                break
            fitting = _fitting(self._buckets[rank], weight_slots)
            if fitting:
                return self._one_of(fitting)
        return None

    def _one_of(self, groups: Groups) -> Address:
        """A random member of the groups, at least one."""
        if len(groups) == 1:
            return groups[0][int(self._random.random() * len(groups[0]))]
        return self._some_of(groups, 1)[0]

    def _some_of(self, groups: Groups, limit: int) -> list[Address]:
        """Up to `limit` members of the groups, at least one, in their order, from a random one on.
        O(groups and members that are returned)."""
        size = 0
        for group in groups:
            size += len(group)
        if size == 1:
            return groups[0][:]
        index, number = int(self._random.random() * size), 0
        while index >= len(groups[number]):
            index -= len(groups[number])
            number += 1
        left = min(limit, size)
        chosen = groups[number][index : index + left]
        while len(chosen) < left:  # the first group is the last one, too, up to where it began
            number = (number + 1) % len(groups)
            chosen += groups[number][: left - len(chosen)]
        return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallbacks:
    """At most `limit` further endpoints, which Envoy may try after the picked one."""

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


def _fitting(bucket: dict[SlotShape, list[Address]], weight_slots: int) -> Groups:
    """The endpoints of a rank with free slots that has enough of them for that weight."""
    if weight_slots == 1:
        return list(bucket.values())
    return [group for shape, group in bucket.items() if can_fit(weight_slots, *shape)]
