"""Tickets of one class and one promise: by tenant, within it by flow, within that by arrival.

Tenants, and the flows of each, are ordered by their virtual times (see `fair_queueing`). Virtual
times change while tickets wait, but never fall, so an entry is checked again when it is first.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from extproc.core.queue.fair_queueing import Flow, Share, Tenant
    from extproc.core.queue.ticket import Ticket

SLACK = 64
"""Entries of those who left that a heap may hold before it is tidied."""

S = TypeVar("S", bound="Share")


class VirtualOrder(Generic[S]):
    """Shares by virtual time, then by the number of the ticket that is their next."""

    __slots__ = ("_entries", "_serial")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, int, S]] = []
        self._serial = count()

    def push(self, share: S, ticket_id: int) -> None:
        """It has this ticket next; also again, where that one stands before its others."""
        heapq.heappush(self._entries, (share.virtual_s, ticket_id, next(self._serial), share))

    def least(self, next_id: Callable[[S], int | None]) -> S:
        """Whose turn it is, by the number of each one's next ticket, None for one that has none.

        Raises `IndexError` when nobody waits here.
        """
        entries = self._entries
        while True:
            virtual_s, id_, _, share = entries[0]
            current = next_id(share)
            if current is None:
                heapq.heappop(entries)
            elif (share.virtual_s, current) == (virtual_s, id_):
                return share
            else:
                entry = (share.virtual_s, current, next(self._serial), share)
                heapq.heapreplace(entries, entry)

    def tidy(self, shares: Mapping[S, object], next_id: Callable[[S], int | None]) -> None:
        """Drop the entries of those who left, if they are many; `shares` are all who wait."""
        if len(self._entries) > 2 * len(shares) + SLACK:
            self._entries = []
            for share in shares:
                id_ = next_id(share)
                if id_ is not None:
                    self.push(share, id_)


class FlowQueue:
    """The tickets of one tenant. Every call is O(log flows), amortised.

    Tickets that come back among others of their flow are put in order once, when it is its turn:
    thousands come back together when the last server of their model is gone.
    """

    __slots__ = ("_flows", "_mixed", "_order", "_size")

    def __init__(self) -> None:
        self._flows: dict[Flow, OrderedDict[int, Ticket]] = {}
        self._mixed: set[Flow] = set()
        self._order: VirtualOrder[Flow] = VirtualOrder()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[OrderedDict[int, Ticket]]:
        """The waiting tickets of each flow, in no order of flows."""
        return iter(self._flows.values())

    def tickets_of(self, flow: Flow) -> Mapping[int, Ticket]:
        """The waiting tickets of one flow, in no order."""
        return self._flows.get(flow, {})

    def enter(self, ticket: Ticket, *, is_back: bool) -> None:
        """Put a ticket at the end of its flow, or, if it comes back, where it would stand."""
        flow = ticket.flow
        tickets = self._flows.get(flow)
        if tickets is None:
            tickets = self._flows[flow] = OrderedDict()
        is_first = not tickets or ticket.id < next(iter(tickets))
        if is_back and tickets and ticket.id < next(reversed(tickets)):
            self._mixed.add(flow)
        tickets[ticket.id] = ticket
        self._size += 1
        if is_first:
            self._order.push(flow, ticket.id)
            self._order.tidy(self._flows, self._next_id)

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out; raises `KeyError` when it is not here."""
        tickets = self._flows[ticket.flow]
        del tickets[ticket.id]
        self._size -= 1
        if not tickets:
            del self._flows[ticket.flow]
            self._mixed.discard(ticket.flow)

    def head(self) -> Ticket:
        """The next one; raises `IndexError` when nobody waits here."""
        if len(self._flows) == 1:  # as for most tenants
            flow = next(iter(self._flows))
        else:
            flow = self._order.least(self._next_id)
        return next(iter(self._in_order(flow).values()))

    def _next_id(self, flow: Flow) -> int | None:
        return next(iter(self._in_order(flow))) if flow in self._flows else None

    def _in_order(self, flow: Flow) -> OrderedDict[int, Ticket]:
        if flow in self._mixed:
            self._mixed.discard(flow)
            self._flows[flow] = OrderedDict(sorted(self._flows[flow].items()))
        return self._flows[flow]


class TenantQueue:
    """The tickets of all tenants. Every call is O(log tenants + log flows), amortised."""

    __slots__ = ("_order", "_size", "_tenants")

    def __init__(self) -> None:
        self._tenants: dict[Tenant, FlowQueue] = {}
        self._order: VirtualOrder[Tenant] = VirtualOrder()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def tenants(self) -> Iterable[tuple[Tenant, FlowQueue]]:
        """Everybody who waits, in no order."""
        return self._tenants.items()

    def enter(self, ticket: Ticket, *, is_back: bool) -> None:
        """Put a ticket at the end of its flow, or, if it comes back, where it would stand."""
        tenant = ticket.flow.tenant
        flows = self._tenants.get(tenant)
        is_first = flows is None
        if flows is None:
            flows = self._tenants[tenant] = FlowQueue()
        flows.enter(ticket, is_back=is_back)
        self._size += 1
        if is_first or is_back:
            self._order.push(tenant, ticket.id)
            self._order.tidy(self._tenants, self._next_id)

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out; raises `KeyError` when it is not here."""
        tenant = ticket.flow.tenant
        flows = self._tenants[tenant]
        flows.leave(ticket)
        self._size -= 1
        if not flows:
            del self._tenants[tenant]

    def head(self) -> Ticket:
        """The next one; raises `IndexError` when nobody waits here."""
        if len(self._tenants) == 1:
            return next(iter(self._tenants.values())).head()
        return self._tenants[self._order.least(self._next_id)].head()

    def _next_id(self, tenant: Tenant) -> int | None:
        flows = self._tenants.get(tenant)
        return None if flows is None else flows.head().id
