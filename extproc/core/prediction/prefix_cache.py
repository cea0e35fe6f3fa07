"""The expected content of each endpoint's prefix cache: the prompts that it processed last.

Each endpoint has a least-recently-used memory of block hashes. The real capacity of a cache is
not reported (llama.cpp keeps far more than its slots hold, if it has memory for it). So this
memory is larger than the capacity that is assumed, and each block records how much the server has
processed since. A block is expected in the cache if that age is within the assumed capacity;
scrapes that show the tokens really cached correct the capacity.

A chain is always refreshed as a whole, its beginning last, so that for a remembered block all
blocks before it are remembered too.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

from extproc.core.address import Address
from extproc.core.learner import Learner

MAX_BLOCKS_EACH = 3072
MAX_BLOCKS_ALL = 307_200
"""Bounds of the memory: about 250 bytes a block."""
STEP = 0.3
"""How far one sample moves the assumed capacity towards it."""
PAST = 0.1
"""The capacity moves towards a point this share past the sample, so that it can reach it."""
GHOST_CREDIT = 0.5
GHOST_REACH = 2.0
"""What a block beyond the assumed capacity counts, and up to which multiple of the capacity."""


class Segment(NamedTuple):
    """Blocks of a chain that were processed at the same time: the end index and the age."""

    upto: int
    age: int


class PrefixCacheModel:
    """The prompts that one endpoint processed. Ages and capacity are in blocks."""

    __slots__ = ("blocks", "capacity", "read")

    def __init__(self, capacity: float) -> None:
        self.blocks: OrderedDict[int, int] = OrderedDict()
        self.capacity = capacity
        self.read = 0
        """Uncached blocks that it ever processed: the clock of ages."""

    def depth(self, chain: tuple[int, ...]) -> int:
        """The number of leading blocks of the chain that are remembered, expected or not."""
        return _depth(chain, self.blocks)

    def age(self, block: int) -> int:
        """Blocks processed since this one; raises `KeyError` if it is not remembered."""
        return self.read - self.blocks[block]

    def expected_hit(self, chain: tuple[int, ...], depth: int) -> int:
        """How many of the first `depth` blocks are expected in the cache."""
        if depth and self.age(chain[depth - 1]) <= self.capacity:
            return depth
        low, high = 0, depth
        while low < high:
            middle = (low + high + 1) // 2
            if self.age(chain[middle - 1]) <= self.capacity:
                low = middle
            else:
                high = middle - 1
        return low

    def optimistic_hit(self, chain: tuple[int, ...], depth: int) -> float:
        """The same, with a share of the blocks beyond the capacity, so that they are tried."""
        held = self.expected_hit(chain, depth)
        if held == depth or self.age(chain[depth - 1]) > GHOST_REACH * self.capacity:
            return float(held)
        return held + GHOST_CREDIT * (depth - held)

    def segments(self, chain: tuple[int, ...], depth: int) -> tuple[Segment, ...]:
        """The first `depth` blocks by age: the end of each segment, and the age of its blocks."""
        found = []
        start = 0
        while start < depth:
            age = self.age(chain[start])
            low, high = start + 1, depth
            while low < high:
                middle = (low + high + 1) // 2
                if self.age(chain[middle - 1]) == age:
                    low = middle
                else:
                    high = middle - 1
            found.append(Segment(low, age))
            start = low
        return tuple(found)

    def correct(
        self,
        chain: tuple[int, ...],
        segments: Sequence[Segment],
        found_blocks: float,
        *,
        is_learned: bool,
    ) -> None:
        """Apply a scrape that shows how many blocks of a processed chain were really cached;
        `segments` are the ages that they had when it was picked.

        Moves the assumed capacity: the true one lies between the age of the last cached block and
        of the first uncached one. Also counts the blocks that were expected but processed, because
        the clock would otherwise stand still, and all blocks stay young, while the capacity is
        overestimated. `is_learned`: `learn` has counted the blocks that were not expected.
        """
        depth = segments[-1].upto if segments else 0
        expected = next((s.upto for s in reversed(segments) if s.age <= self.capacity), 0)
        for upto, age in segments:
            if upto <= found_blocks + 1.0:
                if age > self.capacity:
                    self.capacity += STEP * (age * (1.0 + PAST) - self.capacity)
            else:
                if age <= self.capacity:
                    lower = self.capacity - STEP * (self.capacity - age * (1.0 - PAST))
                    self.capacity = max(1.0, lower)
                break
        self.read += max(0, int((expected if is_learned else depth) - found_blocks))
        for block in chain:
            if block in self.blocks:
                self.blocks[block] = self.read


class PrefixIndex(Learner):
    """The caches of the fleet. O(log blocks) a query, O(blocks) an update."""

    def __init__(self) -> None:
        self._memories: dict[Address, PrefixCacheModel] = {}
        # A dict, because the order of a set differs between processes, and so would a simulation.
        self._holders: dict[int, Address | dict[Address, None]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def memory(self, address: Address) -> PrefixCacheModel | None:
        """The cache model of one endpoint; None if it processed nothing."""
        return self._memories.get(address)

    def learn(self, address: Address, chain: tuple[int, ...], capacity: float) -> None:
        """An endpoint has processed this chain: all of it is cached now.

        `capacity` (in blocks) is assumed for an endpoint without a cache model.
        """
        memory = self._memories.get(address)
        if memory is None:
            memory = self._memories[address] = PrefixCacheModel(capacity)
        blocks = memory.blocks
        memory.read += len(chain) - memory.expected_hit(chain, memory.depth(chain))
        for block in reversed(chain):
            if block not in blocks:
                self._hold(block, address)
            blocks[block] = memory.read
            blocks.move_to_end(block)
        bound = min(MAX_BLOCKS_EACH, MAX_BLOCKS_ALL // len(self._memories))
        while len(blocks) > bound:
            self._drop(blocks.popitem(last=False)[0], address)

    def restore(
        self,
        address: Address,
        capacity: float,
        read: int,
        blocks: Sequence[int],
        read_at: Sequence[int],
    ) -> None:
        """Know the cache of an endpoint as another process knew it: `blocks` were used in this
        order, and each was processed at that `read_at` of the clock of ages. O(blocks)."""
        self.forget(address)
        memory = self._memories[address] = PrefixCacheModel(capacity)
        memory.read = read
        known = memory.blocks
        for block, at in zip(blocks, read_at, strict=True):
            known[block] = at
            self._hold(block, address)

    def forget(self, address: Address) -> None:
        """Its server was restarted or is gone, and its cache with it."""
        memory = self._memories.pop(address, None)
        for block in memory.blocks if memory is not None else ():
            self._drop(block, address)

    def replaced(self, address: Address, _now: float) -> None:
        self.forget(address)

    def holders(self, chain: tuple[int, ...], limit: int) -> list[Address]:
        """Up to `limit` endpoints that remember most of the chain's beginning, best first.

        Starts at the deepest block that any endpoint remembers, and goes towards the beginning.
        """
        low = self.depth(chain)
        found: dict[Address, None] = {}
        while low and len(found) < limit:
            holders = self._holders[chain[low - 1]]
            if isinstance(holders, dict):
                found.update(dict.fromkeys(islice(holders, limit)))
            else:
                found[holders] = None
            low = low * 3 // 4
        return list(islice(found, limit))

    def depth(self, chain: tuple[int, ...]) -> int:
        """The number of leading blocks of the chain that any endpoint processed, as far as they are
        remembered."""
        return _depth(chain, self._holders)

    def longest_hit(self, chain: tuple[int, ...]) -> int:
        """How many leading blocks of the chain are expected in the cache of one of the endpoints
        that remember most of it."""
        depth = self.depth(chain)
        if not depth:
            return 0
        holders = self._holders[chain[depth - 1]]
        address = next(iter(holders)) if isinstance(holders, dict) else holders
        return self._memories[address].expected_hit(chain, depth)

    def _hold(self, block: int, address: Address) -> None:
        holders = self._holders.get(block)
        if holders is None:
            self._holders[block] = address
        elif isinstance(holders, dict):
            holders[address] = None
        else:
            self._holders[block] = {holders: None, address: None}

    def _drop(self, block: int, address: Address) -> None:
        holders = self._holders.get(block)
        if isinstance(holders, dict):
            holders.pop(address, None)
            if len(holders) > 1:
                return
            (self._holders[block],) = holders
        elif holders == address:
            del self._holders[block]


def _depth(chain: tuple[int, ...], known: dict[int, Any]) -> int:
    """The number of leading blocks of the chain that are known: where one is, all before it are."""
    low, high = 0, len(chain)
    while low < high:
        middle = (low + high + 1) // 2
        if chain[middle - 1] in known:
            low = middle
        else:
            high = middle - 1
    return low
