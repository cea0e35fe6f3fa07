"""A lane of the line: the tickets of one demand, and whose turn it is among them.

    class, then the objective whose promise fared worst, then the tenant that used least of the
    fleet, then the flow that used least of the tenant's part, then arrival

A flow's tickets keep their order. Tickets without a promise share one queue; those of an
objective that promises something have one of their own, because its share changes for all.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from extproc.core.queue.flow_queue import SLACK, TenantQueue

if TYPE_CHECKING:
    from extproc.core.constraints import Constraints
    from extproc.core.objective import Criticality
    from extproc.core.queue.slo_attainment import SloAttainment
    from extproc.core.queue.ticket import Ticket

PriorityKey = tuple[int, float, float, float, int]
"""Class, share of promises met, virtual times of the tenant and of its flow, number of arrival;
the smallest is next."""


class ConstraintQueue:
    """The tickets of one demand. O(promises + log tenants + log flows) a call, amortised."""

    __slots__ = ("_arrivals", "_queues", "_size", "constraints")

    def __init__(self, constraints: Constraints) -> None:
        self.constraints = constraints
        self._queues: dict[tuple[Criticality, str | None], TenantQueue] = {}
        self._arrivals: list[tuple[int, Ticket]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def queues(self) -> dict[tuple[Criticality, str | None], TenantQueue]:
        """By class and promising objective; read only."""
        return self._queues

    def enter(self, ticket: Ticket, *, is_back: bool = False) -> None:
        queue = self._queues.get(ticket.subqueue_key)
        if queue is None:
            queue = self._queues[ticket.subqueue_key] = TenantQueue()
        queue.enter(ticket, is_back=is_back)
        heapq.heappush(self._arrivals, (ticket.id, ticket))
        self._size += 1
        ticket.constraint_queue = self

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out; raises `KeyError` when it is not here."""
        queue = self._queues[ticket.subqueue_key]
        queue.leave(ticket)
        if not queue:
            del self._queues[ticket.subqueue_key]
        ticket.constraint_queue = None
        self._size -= 1
        if len(self._arrivals) > 2 * self._size + SLACK:
            here = {e[0]: e for e in self._arrivals if e[1].constraint_queue is self}
            self._arrivals = sorted(here.values())

    def next_by_priority(
        self, slo_attainment: SloAttainment, now: float
    ) -> tuple[PriorityKey, Ticket]:
        """Whose turn it is, and how it compares with other lanes; the lane must not be empty."""
        best: tuple[PriorityKey, Ticket] | None = None
        for (criticality, promise), queue in self._queues.items():
            if best is not None and criticality > best[0][0]:
                continue
            ticket = queue.head()
            share = 1.0 if promise is None else slo_attainment.share(promise, now)
            flow = ticket.flow
            turn = (criticality, share, flow.tenant.virtual_s, flow.virtual_s, ticket.id)
            if best is None or turn < best[0]:
                best = (turn, ticket)
        if best is None:
            raise IndexError("an empty lane has no head")
        return best

    def first_arrived(self) -> Ticket:
        """Who came first of all; raises `IndexError` when the lane is empty."""
        while self._arrivals[0][1].constraint_queue is not self:
            heapq.heappop(self._arrivals)
        return self._arrivals[0][1]
