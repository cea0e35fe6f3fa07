"""Bounds how many scrapes begin in a second, for all endpoints together.

Without a bound the processor time of scrapes grows with the fleet, up to all that there is. A fleet
that needs fewer scrapes waits for none of them. In a larger one each endpoint is scraped as often
as the others, and those that cannot wait come first.

Scrapes that wait begin a few at a time, fewer after each tick that comes late, and more again after
each that does not: where the process is too busy, with these or with other work, more of them would
only take longer, until all of them time out.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

TICK_S: Final = 0.02
"""How often scrapes that wait begin."""
LATE_S: Final = 0.1
"""A tick that comes later than this shows that the process is busy."""
BURST_S: Final = 0.2
"""How many seconds' scrapes may begin at once after a time with fewer of them."""
URGENT_OF: Final = 4
"""Every fourth that begins is not urgent, if such wait: none waits for ever."""

Turn = asyncio.Future[None]
"""Done when the scrape may begin. To cancel it gives it up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """At most `max_per_s` scrapes begin in a second, of all endpoints."""

    max_per_s: float = 500.0

    def __post_init__(self) -> None:
        if self.max_per_s <= 0:
            raise ValueError(f"max_per_s must be greater than 0, not {self.max_per_s}")


class Turns:
    """Gives out turns to scrape, at this pace. Belongs to one event loop."""

    def __init__(self, pace: Pace, clock: Callable[[], float]) -> None:
        self._max_per_s = max_per_s = pace.max_per_s
        self._clock = clock
        self._credit = self._burst = max(1.0, max_per_s * BURST_S)
        self._credited_at = clock()
        self._urgent: deque[Turn] = deque()
        self._others: deque[Turn] = deque()
        self._given = 0
        self._most_at_once = self._at_once = max_per_s * TICK_S
        self._least_at_once = min(1.0, self._most_at_once)
        self._due_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, *, is_urgent: bool) -> Turn:
        """A turn, which is done at once if no other waits and there is time for one."""
        turn: Turn = asyncio.get_running_loop().create_future()
        if self._timer is None:
            now = self._clock()
            self._earn(now - self._credited_at)
            self._credited_at = now
            if self._credit >= 1.0:
                self._credit -= 1.0
                turn.set_result(None)
                return turn
            self._tick_later()
        (self._urgent if is_urgent else self._others).append(turn)
        return turn

    def hurry(self, turn: Turn) -> None:
        """Let a turn that waits be one of the urgent ones."""
        if not turn.done():
            self._urgent.append(turn)

    def _earn(self, seconds: float) -> None:
        self._credit = min(self._burst, self._credit + seconds * self._max_per_s)

    def _tick_later(self) -> None:
        self._due_at = self._clock() + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._credited_at = self._clock()
        if now - self._due_at > LATE_S:
            self._at_once = max(self._least_at_once, self._at_once / 2)
        else:
            self._at_once = min(self._most_at_once, self._at_once + 1)
        self._credit = min(self._credit % 1.0 + self._at_once, self._burst)
        while self._credit >= 1.0:
            turn = self._next()
            if turn is None:
                return
            self._credit -= 1.0
            self._given += 1
            turn.set_result(None)
        self._tick_later()

    def _next(self) -> Turn | None:
        """The next turn that is still wanted."""
        is_others = self._given % URGENT_OF == URGENT_OF - 1
        first, second = self._urgent, self._others
        if is_others:
            first, second = second, first
        for queue in (first, second):
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    return turn
        return None
