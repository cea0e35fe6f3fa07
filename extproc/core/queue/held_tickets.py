"""Queued requests whose session or flow is at its limit: they wait until one of its requests ends.

They are in no constraint queue, so the assignment, the rankings and the forecasts of others do not
see them. A request may be in a session and in a flow with limits. It is listed with one that holds
it back; when that one would let it in and the other is full, it is listed with the other.
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from typing import Final

from extproc.core.objective import Criticality
from extproc.core.queue.ticket import Ticket
from extproc.core.request_groups import Group

SLACK: Final = 64


class HeldTickets:
    """Belongs to a `RequestQueue`. Every call is O(log n), amortised."""

    def __init__(self) -> None:
        self._tickets: dict[int, Ticket] = {}
        self._by_group: dict[Group, list[Ticket]] = {}
        """Heaps by arrival; what is not held back by that group any more is skipped."""
        self._by_pool: Counter[str] = Counter()
        self._by_criticality: Counter[Criticality] = Counter()

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets.values())

    def count_for(self, pool: str) -> int:
        """How many are for this pool; all of them without pools."""
        return self._by_pool[pool] if pool else len(self._tickets)

    def count_of(self, criticality: Criticality) -> int:
        """How many are of this criticality."""
        return self._by_criticality[criticality]

    def hold(self, ticket: Ticket, group: Group) -> None:
        """Hold back a ticket, and list it with this one of its groups."""
        self._tickets[ticket.id] = ticket
        self._by_pool[ticket.request.pool] += 1
        self._by_criticality[ticket.criticality] += 1
        self.list_with(group, ticket)
        for each in ticket.resolved.groups:
            each.hold_back()

    def list_with(self, group: Group, ticket: Ticket) -> None:
        """List a ticket that is held back with this one of its groups."""
        heapq.heappush(self._by_group.setdefault(group, []), ticket)
        ticket.held_by = group

    def release(self, ticket: Ticket) -> None:
        """It is held back no more; raises `KeyError` if it was not."""
        del self._tickets[ticket.id]
        self._by_pool[ticket.request.pool] -= 1
        self._by_criticality[ticket.criticality] -= 1
        for group in ticket.resolved.groups:
            group.end_hold()
            heap = self._by_group.get(group, [])
            if not group.held_back:
                self._by_group.pop(group, None)
            elif len(heap) > 2 * group.held_back + SLACK:
                left = [one for one in heap if self._is_held(one, group)]
                heapq.heapify(left)
                self._by_group[group] = left

    def take_first(self, group: Group) -> Ticket | None:
        """Take the one that arrived first out of the list of a group; None if there is none. The
        caller releases it, or lists it with another."""
        heap = self._by_group.get(group, [])
        while heap:
            ticket = heapq.heappop(heap)
            if self._is_held(ticket, group):
                return ticket
        return None

    def _is_held(self, ticket: Ticket, group: Group) -> bool:
        return ticket.held_by is group and self._tickets.get(ticket.id) is ticket

    def ids_of(self, group: Group) -> list[int]:
        """The ids of those that are listed with a group, in order of arrival. O(n log n)."""
        return sorted(one.id for one in self._by_group[group] if self._is_held(one, group))

    def clear(self) -> None:
        """Forget all of them, and count them no more: their groups are recounted."""
        self._tickets.clear()
        self._by_group.clear()
        self._by_pool.clear()
        self._by_criticality.clear()
