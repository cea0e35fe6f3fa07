"""Tickets of one criticality and one SLO: by tenant, then by flow, then by arrival or by class.

Tenants, and the flows of each, are ordered by their virtual times (see `fair_queueing`). Virtual
times change while tickets are queued but never fall, so an entry is checked again when it is first.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Generic, TypeVar

from extproc.core.queue.fair_queueing import Flow, Share, Tenant
from extproc.core.queue.flow_order import ARRIVAL_ORDER, LAST_COME_ORDER, QueueOrder
from extproc.core.queue.ticket import Ticket

SLACK = 64
"""Stale entries that a heap may hold before it is rebuilt."""

S = TypeVar("S", bound="Share")


class VirtualOrder(Generic[S]):
    """Shares by virtual time, then by the number of their next ticket."""

    __slots__ = ("_entries", "_serial")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, int, S]] = []
        self._serial = count()

    def push(self, share: S, ticket_id: int) -> None:
        """Add a share with its next ticket; again if that ticket now precedes its others."""
        heapq.heappush(self._entries, (share.virtual_s, ticket_id, next(self._serial), share))

    def least(self, next_id: Callable[[S], int | None]) -> S:
        """The share that is served next; `next_id` returns its next ticket number, or None.

        Raises `IndexError` when no ticket is queued.
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
        """Drop stale entries if there are many; `shares` are all shares with queued tickets."""
        if len(self._entries) > 2 * len(shares) + SLACK:
            self._entries = []
            for share in shares:
                id_ = next_id(share)
                if id_ is not None:
                    self.push(share, id_)


class FlowQueue:
    """The tickets of one tenant. Every call is O(log flows), amortised.

    Tickets that return among others of their flow are sorted once, when the flow is next:
    thousands return together when the last server of their model is gone.
    """

    __slots__ = ("_flows", "_order", "_size", "_unsorted", "order")

    def __init__(self) -> None:
        self.order: QueueOrder | None = None
        """The order of each flow if it is not that of the queue."""
        self._flows: dict[Flow, OrderedDict[int, Ticket]] = {}
        self._unsorted: set[Flow] = set()
        self._order: VirtualOrder[Flow] = VirtualOrder()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[OrderedDict[int, Ticket]]:
        """The queued tickets of each flow, in no order of flows."""
        return iter(self._flows.values())

    def tickets_of(self, flow: Flow) -> Mapping[int, Ticket]:
        """The queued tickets of one flow, in no order."""
        return self._flows.get(flow, {})

    def enter(self, ticket: Ticket, *, is_back: bool) -> None:
        """Add a ticket at the end of its flow, or at its arrival position if it returns."""
        flow = ticket.flow
        tickets = self._flows.get(flow)
        if tickets is None:
            tickets = self._flows[flow] = OrderedDict()
        is_first = not tickets or ticket.id < next(iter(tickets))
        if is_back and tickets and ticket.id < next(reversed(tickets)):
            self._unsorted.add(flow)
        tickets[ticket.id] = ticket
        self._size += 1
        if is_first:
            self._order.push(flow, ticket.id)
            self._order.tidy(self._flows, self._next_id)

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket; raises `KeyError` if it is not in this queue."""
        tickets = self._flows[ticket.flow]
        del tickets[ticket.id]
        self._size -= 1
        if not tickets:
            del self._flows[ticket.flow]
            self._unsorted.discard(ticket.flow)

    def head(self, now: float) -> Ticket:
        """The next ticket; raises `IndexError` when the queue is empty."""
        return self.next_of(self._next_flow(), now)

    def next_of(self, flow: Flow, now: float) -> Ticket:  # noqa: ARG002 - for orders with time
        """The next ticket of a flow that has any."""
        return self._first_of(flow)

    def place_of(self, head: Ticket) -> int:
        """The number by which the next ticket is compared with those of other queues."""
        return head.id

    def first(self) -> Ticket:
        """The ticket that arrived first in the next flow; raises `IndexError` when the queue is
        empty."""
        return self._first_of(self._next_flow())

    def _next_flow(self) -> Flow:
        if len(self._flows) == 1:  # as for most tenants
            return next(iter(self._flows))
        return self._order.least(self._next_id)

    def _first_of(self, flow: Flow) -> Ticket:
        return next(iter(self._in_order(flow).values()))

    def _next_id(self, flow: Flow) -> int | None:
        return next(iter(self._in_order(flow))) if flow in self._flows else None

    def _in_order(self, flow: Flow) -> OrderedDict[int, Ticket]:
        if flow in self._unsorted:
            self._unsorted.discard(flow)
            self._flows[flow] = OrderedDict(sorted(self._flows[flow].items()))
        return self._flows[flow]


class LastComeFlowQueue(FlowQueue):
    """The tickets of one tenant, of each flow the newest first.

    Other queues of the same flow are compared with this one by arrival. Its newest ticket would
    always lose, and its oldest, which may never be served, always win. So each ticket brings a
    place, its number, and each that leaves takes the oldest place of its flow away: the next ticket
    is compared by that, as if the order were that of arrival.
    """

    __slots__ = ("_places",)

    def __init__(self) -> None:
        super().__init__()
        self.order = LAST_COME_ORDER
        self._places: dict[Flow, list[int]] = {}

    def enter(self, ticket: Ticket, *, is_back: bool) -> None:
        super().enter(ticket, is_back=is_back)
        heapq.heappush(self._places.setdefault(ticket.flow, []), ticket.id)

    def leave(self, ticket: Ticket) -> None:
        super().leave(ticket)
        heapq.heappop(self._places[ticket.flow])
        if ticket.flow not in self._flows:
            del self._places[ticket.flow]

    def next_of(self, flow: Flow, now: float) -> Ticket:  # noqa: ARG002 - for orders with time
        tickets = self._in_order(flow)
        return tickets[next(reversed(tickets))]

    def place_of(self, head: Ticket) -> int:
        return self._places[head.flow][0]


class ClassedFlowQueue(FlowQueue):
    """The tickets of one tenant, of each flow the lowest class first: the shortest expected (SEPT),
    or those of sessions that were served before.

    Which flow is next does not depend on classes, so no share of any tenant or flow changes.
    Tickets of one class keep their order of arrival, and a ticket that has waited for the bound of
    the order is passed by no other of its flow. Every call is O(log tickets), amortised.
    """

    __slots__ = ("_by_class", "_max_overtaken_s")

    def __init__(self, queue_order: QueueOrder) -> None:
        super().__init__()
        self._max_overtaken_s = queue_order.max_overtaken_s
        self._by_class: dict[Flow, list[tuple[int, int]]] = {}
        """Of each flow a heap of classes and ticket numbers, of which some have left."""

    def enter(self, ticket: Ticket, *, is_back: bool) -> None:
        super().enter(ticket, is_back=is_back)
        heap = self._by_class.get(ticket.flow)
        if heap is None:
            heap = self._by_class[ticket.flow] = []
        heapq.heappush(heap, (ticket.order_class, ticket.id))

    def leave(self, ticket: Ticket) -> None:
        super().leave(ticket)
        tickets = self._flows.get(ticket.flow)
        if tickets is None:
            del self._by_class[ticket.flow]
        elif len(self._by_class[ticket.flow]) > 2 * len(tickets) + SLACK:
            self._by_class[ticket.flow] = sorted(
                (each.order_class, each.id) for each in tickets.values()
            )

    def next_of(self, flow: Flow, now: float) -> Ticket:
        first = self._first_of(flow)
        if now >= first.entered_at + self._max_overtaken_s:
            return first
        heap, tickets = self._by_class[flow], self._flows[flow]
        while heap[0][1] not in tickets:
            heapq.heappop(heap)
        return tickets[heap[0][1]]


class TenantQueue:
    """The tickets of all tenants. Every call is O(log tenants + log flows), amortised."""

    __slots__ = ("_order", "_queue_order", "_size", "_tenants")

    def __init__(self, queue_order: QueueOrder = ARRIVAL_ORDER) -> None:
        self._queue_order = queue_order
        self._tenants: dict[Tenant, FlowQueue] = {}
        self._order: VirtualOrder[Tenant] = VirtualOrder()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def tenants(self) -> Iterable[tuple[Tenant, FlowQueue]]:
        """Every tenant with queued tickets, in no order."""
        return self._tenants.items()

    def of_tenant(self, tenant: Tenant) -> FlowQueue | None:
        """The queued tickets of a tenant, None without any."""
        return self._tenants.get(tenant)

    def enter(self, ticket: Ticket, *, is_back: bool) -> None:
        """Add a ticket at the end of its flow, or at its arrival position if it returns."""
        tenant = ticket.flow.tenant
        flows = self._tenants.get(tenant)
        is_first = flows is None
        if flows is None:
            flows = self._tenants[tenant] = _flow_queue(self._queue_order)
        flows.enter(ticket, is_back=is_back)
        self._size += 1
        if is_first or is_back:
            self._order.push(tenant, ticket.id)
            self._order.tidy(self._tenants, self._next_id)

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket; raises `KeyError` if it is not in this queue."""
        tenant = ticket.flow.tenant
        flows = self._tenants[tenant]
        flows.leave(ticket)
        self._size -= 1
        if not flows:
            del self._tenants[tenant]

    def head(self, now: float) -> Ticket:
        """The next ticket; raises `IndexError` when the queue is empty."""
        if len(self._tenants) == 1:
            return next(iter(self._tenants.values())).head(now)
        return self._tenants[self._order.least(self._next_id)].head(now)

    def next_of_flow(self, flow: Flow, now: float) -> Ticket:
        """The next ticket of a flow that has any."""
        return self._tenants[flow.tenant].next_of(flow, now)

    def place_of(self, head: Ticket) -> int:
        """The number by which the next ticket is compared with those of other queues."""
        return self._tenants[head.flow.tenant].place_of(head)

    def _next_id(self, tenant: Tenant) -> int | None:
        flows = self._tenants.get(tenant)
        return None if flows is None else flows.first().id


def _flow_queue(order: QueueOrder) -> FlowQueue:
    if order.is_last_come:
        return LastComeFlowQueue()
    return ClassedFlowQueue(order) if order.has_classes else FlowQueue()
