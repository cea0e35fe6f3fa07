"""Tickets that wait for one endpoint, because it has their prompt's beginning in its cache.

Waiting for a busy server can be quicker than reading a long prompt anew on an idle one. Such a
ticket is pinned to its home for as long as that would have saved, then it may go anywhere: at
worst it waits as long as the cache would have spared it.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.queue.request_queue import RequestQueue
    from extproc.core.queue.ticket import Ticket


class AffinityWaits:
    """Pinned tickets; at most all of the line. O(log n) a call."""

    def __init__(self, line: RequestQueue) -> None:
        self._line = line
        self._until: list[tuple[float, int, Address]] = []
        self._pinned: dict[Address, dict[int, Ticket]] = {}

    def waiting_at(self, home: Address) -> int:
        """How many are pinned to it."""
        return len(self._pinned.get(home, ()))

    def pin(self, ticket: Ticket, home: Address, until: float) -> None:
        """Let it wait for its home alone, once in its life."""
        ticket.pinned_to = home
        self._line.change_constraints(
            ticket, ticket.constraints._replace(allowed=frozenset((home,)))
        )
        self._pinned.setdefault(home, {})[ticket.id] = ticket
        heapq.heappush(self._until, (until, ticket.id, home))

    def left(self, ticket: Ticket) -> None:
        """It left the line, or is pinned no more; one that was not pinned is no error."""
        if ticket.pinned_to is None:
            return
        pinned = self._pinned.get(ticket.pinned_to)
        if pinned is not None and pinned.pop(ticket.id, None) is not None and not pinned:
            del self._pinned[ticket.pinned_to]

    def unpin(self, ticket: Ticket) -> None:
        """It may go anywhere again that suits it."""
        self.left(ticket)
        self._line.change_constraints(ticket, ticket.resolved.constraints)

    def clear(self) -> None:
        """Nobody is pinned: the queue was rebuilt."""
        self._until.clear()
        self._pinned.clear()

    def faults(self) -> list[str]:
        """Pinned tickets that do not wait. O(pinned)."""
        return [
            f"ticket {id_} waits for {home} and has left the queue"
            for home, tickets in self._pinned.items()
            for id_, ticket in tickets.items()
            if not ticket.is_waiting
        ]

    def first_pinned_to(self, home: Address) -> Ticket | None:
        """One of those that are pinned to it, None where nobody is."""
        return next(iter(self._pinned.get(home, {}).values()), None)

    def expired(self, now: float) -> list[Ticket]:
        """Unpin those whose patience is over; returns them."""
        late = []
        while (until := self.next_expiry()) is not None and until <= now:
            _, id_, home = heapq.heappop(self._until)
            ticket = self._pinned[home][id_]
            self.unpin(ticket)
            late.append(ticket)
        return late

    def next_expiry(self) -> float | None:
        """When `expired` has something to do next, or None."""
        while self._until:
            until, id_, home = self._until[0]
            if id_ in self._pinned.get(home, ()):
                return until
            heapq.heappop(self._until)
        return None
