"""Which endpoint still holds a prompt's beginning: what each was last asked to read.

For every endpoint a least-recently-used memory of block hashes. How much a server really
keeps is told nowhere (llama.cpp keeps far more than its slots hold, when it has memory for
it), so the memory here reaches further than what is believed, and each block remembers how
much the server has read since. A block is expected to be there if that age is within the
capacity believed; looks that show what was really cached move the belief.

A chain is always refreshed as a whole, its beginning last, so that of a remembered block all
those before it are remembered too.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from extproc.core.address import Address

MAX_BLOCKS_EACH = 3072
MAX_BLOCKS_ALL = 307_200
"""Bounds of the memory: about 250 bytes a block."""
STEP = 0.3
"""How far one piece of evidence moves the believed capacity towards it."""
PAST = 0.1
"""It moves towards a point so far past the evidence, or it would never come to agree with it."""
GHOST_CREDIT = 0.5
GHOST_REACH = 2.0
"""What a block beyond the believed capacity counts, up to how many times as far."""


class Segment(NamedTuple):
    """Blocks of a chain that were read at the same time: up to which one, and how long ago."""

    upto: int
    age: int


class PrefixCacheModel:
    """What one endpoint was asked to read. Ages and capacity are in blocks."""

    __slots__ = ("blocks", "capacity", "read")

    def __init__(self, capacity: float) -> None:
        self.blocks: OrderedDict[int, int] = OrderedDict()
        self.capacity = capacity
        self.read = 0
        """Blocks that it had to read anew, ever: the clock of ages."""

    def depth(self, chain: Sequence[int]) -> int:
        """How many leading blocks of the chain are remembered, believed there or not."""
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high + 1) // 2
            if chain[middle - 1] in self.blocks:
                low = middle
            else:
                high = middle - 1
        return low

    def age(self, block: int) -> int:
        """Blocks read since this one was; raises `KeyError` when it is not remembered."""
        return self.read - self.blocks[block]

    def expected_hit(self, chain: Sequence[int], depth: int) -> int:
        """How many of the first `depth` blocks are believed to be there."""
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

    def optimistic_hit(self, chain: Sequence[int], depth: int) -> float:
        """The same, with a part of the ghosts: some of them must be tried to learn of them."""
        held = self.expected_hit(chain, depth)
        if held == depth or self.age(chain[depth - 1]) > GHOST_REACH * self.capacity:
            return float(held)
        return held + GHOST_CREDIT * (depth - held)

    def segments(self, chain: Sequence[int], depth: int) -> tuple[Segment, ...]:
        """The first `depth` blocks by age: each segment's end, and the age of all in it."""
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
        chain: Sequence[int],
        segments: Sequence[Segment],
        found_blocks: float,
        *,
        is_learned: bool,
    ) -> None:
        """Of a chain that is in the server's hands so many blocks were really there; `segments`
        are the ages that they had when it was picked.

        Moves the believed capacity: the true one lies between the age of the last block that was
        there and of the first that was not. And counts what was read against the belief, or the
        clock would stand still, and all stay young, where more is believed than is there.
        `is_learned` tells that `learn` has counted already what was not believed.
        """
        depth = segments[-1].upto if segments else 0
        believed = next((s.upto for s in reversed(segments) if s.age <= self.capacity), 0)
        for upto, age in segments:
            if upto <= found_blocks + 1.0:
                if age > self.capacity:
                    self.capacity += STEP * (age * (1.0 + PAST) - self.capacity)
            else:
                if age <= self.capacity:
                    lower = self.capacity - STEP * (self.capacity - age * (1.0 - PAST))
                    self.capacity = max(1.0, lower)
                break
        self.read += max(0, int((believed if is_learned else depth) - found_blocks))
        for block in chain:
            if block in self.blocks:
                self.blocks[block] = self.read


class PrefixIndex:
    """The memories of the fleet. O(log blocks) a question, O(blocks) when something is learned."""

    def __init__(self) -> None:
        self._memories: dict[Address, PrefixCacheModel] = {}
        # A set's order is another one in each process, and a simulation would be, too.
        self._holders: dict[int, Address | dict[Address, None]] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def memory(self, address: Address) -> PrefixCacheModel | None:
        """What one endpoint was asked to read; None when nothing was."""
        return self._memories.get(address)

    def learn(self, address: Address, chain: Sequence[int], capacity: float) -> None:
        """An endpoint has read this chain: all of it is there now.

        `capacity` (in blocks) is what to believe of an endpoint that is heard of first.
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

    def forget(self, address: Address) -> None:
        """Its server was restarted or is gone, and its cache with it."""
        memory = self._memories.pop(address, None)
        for block in memory.blocks if memory is not None else ():
            self._drop(block, address)

    def holders(self, chain: Sequence[int], many: int) -> list[Address]:
        """Up to `many` endpoints that remember most of the chain's beginning, the best first.

        Looks at the deepest block that anybody remembers, then ever closer to the beginning.
        """
        low, high = 0, len(chain)
        while low < high:
            middle = (low + high + 1) // 2
            if chain[middle - 1] in self._holders:
                low = middle
            else:
                high = middle - 1
        found: dict[Address, None] = {}
        while low and len(found) < many:
            holders = self._holders[chain[low - 1]]
            if isinstance(holders, dict):
                found.update(dict.fromkeys(islice(holders, many)))
            else:
                found[holders] = None
            low = low * 3 // 4
        return list(islice(found, many))

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
