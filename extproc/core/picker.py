"""Which endpoint next: the one with the largest share of free slots, ties at random.

The ranking is kept up to date as numbers change, so a pick never looks at all endpoints:
endpoints of equal rank share a bucket, and the ranks are kept sorted. There are as many
ranks as different shares, which slot counts bound, whatever the number of endpoints.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from extproc.core.account import Account
    from extproc.core.address import Address
    from extproc.core.endpoint import Endpoint

Rank = tuple[bool, bool, float]
"""Has a free slot, is first choice (fresh and awake), share of free slots; larger is better."""


class Picker:
    """Ranked endpoints that may be picked. Changing a rank is O(log ranks), a pick O(1)."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ranks: list[Rank] = []
        self._buckets: dict[Rank, list[Address]] = {}
        self._places: dict[Address, tuple[Rank, int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def place(self, endpoint: Endpoint, account: Account) -> None:
        """Rank an endpoint by its present numbers, or take it out when it may not be picked."""
        if not endpoint.is_pickable or account.slots == 0:
            self.remove(endpoint.address)
            return
        free = account.free_slots
        rank = (free > 0, endpoint.is_first_choice, free / account.slots)
        address = endpoint.address
        place = self._places.get(address)
        if place is not None:
            if place[0] == rank:
                return
            self.remove(address)
        bucket = self._buckets.get(rank)
        if bucket is None:
            bucket = self._buckets[rank] = []
            insort(self._ranks, rank)
        self._places[address] = (rank, len(bucket))
        bucket.append(address)

    def remove(self, address: Address) -> None:
        """Forget an endpoint; one that is not ranked is no error."""
        place = self._places.pop(address, None)
        if place is None:
            return
        rank, index = place
        bucket = self._buckets[rank]
        last = bucket.pop()
        if last != address:
            bucket[index] = last
            self._places[last] = (rank, index)
        if not bucket:
            del self._buckets[rank]
            del self._ranks[bisect_left(self._ranks, rank)]

    def best(self, many: int) -> list[Address]:
        """Up to `many` endpoints, best first; those without a free slot come last."""
        chosen: list[Address] = []
        for rank in reversed(self._ranks):
            bucket = self._buckets[rank]
            wanted = min(many - len(chosen), len(bucket))
            start = int(self._random.random() * len(bucket))
            chosen.extend(bucket[(start + step) % len(bucket)] for step in range(wanted))
            if len(chosen) == many:
                break
        return chosen

    def has_free(self) -> bool:
        """Whether any endpoint has a free slot."""
        return bool(self._ranks) and self._ranks[-1][0]

    def with_free(self) -> Iterator[Address]:
        """Every endpoint with a free slot, best rank first."""
        for rank in reversed(self._ranks):
            if not rank[0]:
                return
            yield from self._buckets[rank]
