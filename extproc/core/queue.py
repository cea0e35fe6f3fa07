"""The line of requests that no free slot could take yet: first come, first served."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count

from extproc.core.request import Request


class Ticket:
    """A request's place in line. It ends once: served, refused at its deadline, or withdrawn."""

    __slots__ = ("deadline", "entered_at", "id", "is_waiting", "request")

    def __init__(self, id_: int, request: Request, now: float) -> None:
        self.id = id_
        self.request = request
        self.entered_at = now
        self.deadline = now + request.timeout_s
        self.is_waiting = True


class Line:
    """Tickets in order of arrival. Every call is O(log n), amortised."""

    def __init__(self) -> None:
        self._tickets: OrderedDict[int, Ticket] = OrderedDict()
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._ids = count(1)

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets.values())

    def enter(self, request: Request, now: float) -> Ticket:
        """Put a request at the end."""
        ticket = Ticket(next(self._ids), request, now)
        self._tickets[ticket.id] = ticket
        heapq.heappush(self._deadlines, (ticket.deadline, ticket.id, ticket))
        return ticket

    def head(self) -> Ticket | None:
        """Whose turn it is, or None when nobody waits."""
        return next(iter(self._tickets.values()), None)

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out of the line; raises `KeyError` when it is not in it."""
        del self._tickets[ticket.id]
        ticket.is_waiting = False
        if len(self._deadlines) > 2 * len(self._tickets) + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[2].is_waiting]
            heapq.heapify(self._deadlines)

    def expired(self, now: float) -> list[Ticket]:
        """Take out the tickets whose deadline has come, in order of deadline."""
        late = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            ticket = heapq.heappop(self._deadlines)[2]
            self.leave(ticket)
            late.append(ticket)
        return late

    def next_deadline(self) -> float | None:
        """When `expired` has something to do next, or None."""
        while self._deadlines and not self._deadlines[0][2].is_waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None
