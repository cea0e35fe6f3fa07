"""Queued requests that wait for one endpoint, because its cache has the beginning of their prompt.

To wait for a busy server can take less time than to process a long prompt again on an idle one.
Such a ticket is pinned to its endpoint for at most the time that the cache would save. After that
it may go anywhere.
"""

import heapq
from collections.abc import Iterator

from extproc.core.address import Address
from extproc.core.queue.request_queue import RequestQueue
from extproc.core.queue.ticket import Ticket


class AffinityWaits:
    """Pinned tickets; at most all queued tickets. O(log n) a call."""

    def __init__(self, queue: RequestQueue) -> None:
        self._queue = queue
        self._expiries: list[tuple[float, int, Address]] = []
        self._pinned: dict[Address, dict[int, Ticket]] = {}

    def waiting_at(self, address: Address) -> int:
        """The number of tickets that are pinned to this endpoint."""
        return len(self._pinned.get(address, ()))

    def is_pinned(self, ticket: Ticket) -> bool:
        """Whether the ticket waits for one endpoint."""
        address = ticket.pinned_to
        return address is not None and ticket.id in self._pinned.get(address, ())

    def tickets(self) -> Iterator[Ticket]:
        """All pinned tickets."""
        return (ticket for pinned in self._pinned.values() for ticket in pinned.values())

    def pin(self, ticket: Ticket, address: Address, until: float) -> None:
        """Restrict a ticket to one endpoint until `until`, at most once in its life."""
        ticket.pinned_to = address
        self._queue.change_constraints(
            ticket, ticket.constraints._replace(allowed=frozenset((address,)))
        )
        self._pinned.setdefault(address, {})[ticket.id] = ticket
        heapq.heappush(self._expiries, (until, ticket.id, address))

    def left(self, ticket: Ticket) -> None:
        """A ticket left the queue or is no longer pinned; no error if it was not pinned."""
        if ticket.pinned_to is None:
            return
        pinned = self._pinned.get(ticket.pinned_to)
        if pinned is not None and pinned.pop(ticket.id, None) is not None and not pinned:
            del self._pinned[ticket.pinned_to]

    def unpin(self, ticket: Ticket) -> None:
        """Allow the ticket every eligible endpoint again."""
        self.left(ticket)
        self._queue.change_constraints(ticket, ticket.resolved.constraints)

    def clear(self) -> None:
        """Forget all pins, after the queue was rebuilt."""
        self._expiries.clear()
        self._pinned.clear()

    def faults(self) -> list[str]:
        """Pinned tickets that are not queued. O(pinned)."""
        return [
            f"ticket {id_} waits for {address} and has left the queue"
            for address, tickets in self._pinned.items()
            for id_, ticket in tickets.items()
            if not ticket.is_waiting
        ]

    def first_pinned_to(self, address: Address) -> Ticket | None:
        """A ticket that is pinned to this endpoint, or None."""
        return next(iter(self._pinned.get(address, {}).values()), None)

    def expired(self, now: float) -> list[Ticket]:
        """Unpin the tickets whose affinity wait is over, and return them."""
        expired = []
        while (until := self.next_expiry()) is not None and until <= now:
            _, id_, address = heapq.heappop(self._expiries)
            ticket = self._pinned[address][id_]
            self.unpin(ticket)
            expired.append(ticket)
        return expired

    def next_expiry(self) -> float | None:
        """When `expired` must be called next, or None."""
        while self._expiries:
            until, id_, address = self._expiries[0]
            if id_ in self._pinned.get(address, ()):
                return until
            heapq.heappop(self._expiries)
        return None
