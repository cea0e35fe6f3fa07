"""How many lines may run: one for each idle slot that others do not want.

A line takes a slot that no other request wants now. Nobody knows whether one arrives before the
line ends, but a line can be given back: its connection is closed, and its slot is free after the
step that the server computes, and after a scrape has shown that. So what matters is how many other
requests arrive within the time of giving back (`YIELD_S`): enough slots stay idle for them in four
of five cases. In a quiet fleet that is none, as hardly ever one arrives
(docs/decisions/0252-a-batch-takes-idle-slots-and-gives-them-back.md).

Pure: `now` is an argument, in seconds.
"""

from collections import deque
from dataclasses import dataclass
from math import exp
from typing import Final

YIELD_S: Final = 0.15
"""From the moment at which a line is given back until its slot is known to be free."""
UNSEEN_S: Final = 0.5
"""After this time a line that was sent or given back counts no more, whether the picker's news have
shown it or not: they come within 20 ms of a change, and another change may hide it."""
ENOUGH: Final = 0.8
"""The share of cases in which the idle slots suffice."""
MAX_RESERVE: Final = 1000


def reserve(arrivals_per_s: float, yield_s: float = YIELD_S) -> int:
    """The slots that stay idle for these arrivals of other requests: the 80 % quantile of Poisson's
    distribution."""
    mean = arrivals_per_s * yield_s
    if mean > MAX_RESERVE / 2:
        return int(mean)
    term = total = exp(-mean)
    count = 0
    while total < ENOUGH and count < MAX_RESERVE:
        count += 1
        term *= mean / count
        total += term
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a picker says about the slots of a model. `busy` are those in use, ours among them, and
    one for each queued request: it may exceed `slots`. `arrivals_per_s` are other requests."""

    slots: int
    busy: int
    arrivals_per_s: float = 0.0

    @property
    def idle(self) -> int:
        """Below 0 if requests wait."""
        return self.slots - self.busy


class Gate:
    """The lines that come and go in the slots of one model. O(lines of the last second)."""

    def __init__(self) -> None:
        self._begun: deque[float] = deque()
        self._given_back: deque[float] = deque()
        self._busy: int | None = None
        self._ended = 0

    def begun(self, now: float) -> None:
        """A line was sent."""
        self._begun.append(now)

    def given_back(self, now: float) -> None:
        """A line's connection was closed, so that its slot becomes free."""
        self._given_back.append(now)

    def ended(self) -> None:
        """A line's response has come: its slot is free, which the news will show."""
        self._ended += 1

    def rejected(self) -> None:
        """A line got no slot, so that no news will show it."""
        if self._begun:
            self._begun.popleft()

    def heard(self, busy: int, now: float) -> None:
        """The picker reported how many slots are busy: more mean that lines have theirs, fewer that
        some became free."""
        if self._busy is not None:
            change = busy - self._busy + self._ended
            seen = self._begun if change > 0 else self._given_back
            for _ in range(min(len(seen), abs(change))):
                seen.popleft()
        self._ended = 0
        self._busy = busy
        self._forget(now)

    @property
    def settles_at(self) -> float | None:
        """When there may be more room without any news; None if there is no such time."""
        return self._begun[0] + UNSEEN_S if self._begun else None

    def room(self, capacity: Capacity, now: float) -> int:
        """How many lines may be sent now; below 0: how many must be given back, one for each
        request that waits. An idle slot less than the reserve is no reason to give one back: it
        is there for who comes, and the next response that ends makes up for it."""
        self._forget(now)
        waiting = max(0, -capacity.idle)
        if waiting:
            return -max(0, waiting - len(self._given_back))
        return max(0, capacity.idle - reserve(capacity.arrivals_per_s) - len(self._begun))

    def _forget(self, now: float) -> None:
        for unseen in (self._begun, self._given_back):
            while unseen and now - unseen[0] >= UNSEEN_S:
                unseen.popleft()
