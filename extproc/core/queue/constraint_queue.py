"""The queued requests with equal constraints and bounds, and the next of them by priority.

Order: criticality, lowest SLO attainment, the tenant's use of the fleet, the flow's use within
the tenant, class if the queue's order has classes, arrival.

The tickets of a flow keep their order of arrival otherwise. Tickets without an SLO share one tenant
queue. Each objective with an SLO has its own, because its attainment changes for all of its
tickets.
"""

import heapq
from typing import Final

from extproc.core.bounds import BoundsOfRequest
from extproc.core.constraints import Constraints
from extproc.core.objective import Criticality
from extproc.core.queue.flow_order import ARRIVAL_ORDER, QueueOrder
from extproc.core.queue.flow_queue import SLACK, TenantQueue
from extproc.core.queue.slo_attainment import SloAttainment
from extproc.core.queue.ticket import Ticket

PriorityKey = tuple[int, float, float, float, int, int]
"""Criticality, SLO attainment, virtual times of the tenant and of its flow, class, ticket number or
place; the smallest is next."""
OVERDUE: Final = -(10**6)
"""Below all classes: no other ticket of its flow may pass any more."""


class ConstraintQueue:
    """The tickets with one set of constraints. O(SLOs + log tenants + log flows), amortised."""

    __slots__ = ("_arrivals", "_size", "bounds", "constraints", "order", "queues")

    def __init__(
        self,
        constraints: Constraints,
        order: QueueOrder = ARRIVAL_ORDER,
        bounds: BoundsOfRequest = (),
    ) -> None:
        self.constraints = constraints
        self.bounds = bounds
        self.order = order
        self.queues: dict[tuple[Criticality, str | None], TenantQueue] = {}
        """By criticality and by the objective, if it has an SLO; read only."""
        self._arrivals: list[tuple[int, Ticket]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def enter(self, ticket: Ticket, *, is_back: bool = False) -> None:
        queue = self.queues.get(ticket.subqueue_key)
        if queue is None:
            queue = self.queues[ticket.subqueue_key] = TenantQueue(self.order)
        queue.enter(ticket, is_back=is_back)
        heapq.heappush(self._arrivals, (ticket.id, ticket))
        self._size += 1
        ticket.queued_in = self

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket; raises `KeyError` if it is not in this queue."""
        queue = self.queues[ticket.subqueue_key]
        queue.leave(ticket)
        if not queue:
            del self.queues[ticket.subqueue_key]
        ticket.queued_in = None
        self._size -= 1
        if len(self._arrivals) > 2 * self._size + SLACK:
            here = {e[0]: e for e in self._arrivals if e[1].queued_in is self}
            self._arrivals = sorted(here.values())

    def next_by_priority(
        self, slo_attainment: SloAttainment, now: float
    ) -> tuple[PriorityKey, Ticket]:
        """The next ticket and its key, to compare with other queues; raises if it is empty."""
        best: tuple[PriorityKey, Ticket] | None = None
        has_classes, is_last_come = self.order.has_classes, self.order.is_last_come
        for (criticality, objective), queue in self.queues.items():
            if best is not None and criticality > best[0][0]:
                continue
            ticket = queue.head(now)
            share = 1.0 if objective is None else slo_attainment.share(objective, now)
            flow = ticket.flow
            order_class = ticket.order_class
            if has_classes and now >= self.order.overtaken_until(ticket.entered_at):
                order_class = OVERDUE
            tenant_s, flow_s = flow.tenant.virtual_s, flow.virtual_s
            place = queue.place_of(ticket) if is_last_come else ticket.id
            key = (criticality, share, tenant_s, flow_s, order_class, place)
            if best is None or key < best[0]:
                best = (key, ticket)
        if best is None:
            raise IndexError("an empty queue has no next ticket")
        return best

    def first_arrived(self) -> Ticket:
        """The ticket that arrived first; raises `IndexError` when the queue is empty."""
        while self._arrivals[0][1].queued_in is not self:
            heapq.heappop(self._arrivals)
        return self._arrivals[0][1]

    def next_of_flow(self, ticket: Ticket, now: float) -> Ticket:
        """The next ticket of the flow of a ticket that is in this queue."""
        return self.queues[ticket.subqueue_key].next_of_flow(ticket.flow, now)
