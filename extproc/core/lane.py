"""A lane of the line: the tickets of one demand, and whose turn it is among them.

    class, then the objective whose promise fared worst, then the flow that used least of the
    fleet, then arrival

A flow's tickets keep their order. Tickets without a promise share one queue; those of an
objective that promises something have one of their own, because its share changes for all.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from extproc.core.attainment import Promises
    from extproc.core.demand import Demand
    from extproc.core.fairness import Flow
    from extproc.core.objective import Criticality
    from extproc.core.queue import Ticket

Turn = tuple[int, float, float, int]
"""Class, share of promises met, virtual time, number of arrival; the smallest is next."""
SLACK = 64
"""Entries of those who left that a heap may hold before it is tidied."""


class FlowQueue:
    """Tickets of one class and one promise. Every call is O(log flows), amortised.

    Tickets that come back among others of their flow are put in order once, when it is its turn:
    thousands come back together when the last server of their model is gone.
    """

    __slots__ = ("_flows", "_heap", "_mixed", "_serial")

    def __init__(self) -> None:
        self._flows: dict[Flow, OrderedDict[int, Ticket]] = {}
        self._mixed: set[Flow] = set()
        self._heap: list[tuple[float, int, int, Flow]] = []
        self._serial = count()

    def __bool__(self) -> bool:
        return bool(self._flows)

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
        if is_first:
            heapq.heappush(self._heap, (flow.virtual_s, ticket.id, next(self._serial), flow))
            if len(self._heap) > 2 * len(self._flows) + SLACK:
                self._heap = []
                for waiting in self._flows:
                    self._push(waiting)

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out; raises `KeyError` when it is not here."""
        tickets = self._flows[ticket.flow]
        del tickets[ticket.id]
        if not tickets:
            del self._flows[ticket.flow]
            self._mixed.discard(ticket.flow)

    def head(self) -> Ticket:
        """The next one; raises `IndexError` when nobody waits here."""
        while True:
            virtual_s, id_, _, flow = self._heap[0]
            tickets = self._flows.get(flow)
            if tickets is None:
                heapq.heappop(self._heap)
                continue
            first = self._first(flow)
            if (flow.virtual_s, first.id) == (virtual_s, id_):
                return first
            heapq.heappop(self._heap)
            self._push(flow)

    def _push(self, flow: Flow) -> None:
        first = self._first(flow)
        heapq.heappush(self._heap, (flow.virtual_s, first.id, next(self._serial), flow))

    def _first(self, flow: Flow) -> Ticket:
        tickets = self._flows[flow]
        if flow in self._mixed:
            self._mixed.discard(flow)
            tickets = self._flows[flow] = OrderedDict(sorted(tickets.items()))
        return next(iter(tickets.values()))


class Lane:
    """The tickets of one demand. O(promises + log flows) a call, amortised."""

    __slots__ = ("_arrivals", "_queues", "_size", "demand")

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self._queues: dict[tuple[Criticality, str | None], FlowQueue] = {}
        self._arrivals: list[tuple[int, Ticket]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def queues(self) -> dict[tuple[Criticality, str | None], FlowQueue]:
        """By class and promising objective; read only."""
        return self._queues

    def enter(self, ticket: Ticket, *, is_back: bool = False) -> None:
        queue = self._queues.get(ticket.standing)
        if queue is None:
            queue = self._queues[ticket.standing] = FlowQueue()
        queue.enter(ticket, is_back=is_back)
        heapq.heappush(self._arrivals, (ticket.id, ticket))
        self._size += 1
        ticket.lane = self

    def leave(self, ticket: Ticket) -> None:
        """Take a ticket out; raises `KeyError` when it is not here."""
        queue = self._queues[ticket.standing]
        queue.leave(ticket)
        if not queue:
            del self._queues[ticket.standing]
        ticket.lane = None
        self._size -= 1
        if len(self._arrivals) > 2 * self._size + SLACK:
            here = {e[0]: e for e in self._arrivals if e[1].lane is self}
            self._arrivals = sorted(here.values())

    def head(self, promises: Promises, now: float) -> tuple[Turn, Ticket]:
        """Whose turn it is, and how it compares with other lanes; the lane must not be empty."""
        best: tuple[Turn, Ticket] | None = None
        for (criticality, promise), queue in self._queues.items():
            if best is not None and criticality > best[0][0]:
                continue
            ticket = queue.head()
            share = 1.0 if promise is None else promises.share(promise, now)
            turn = (criticality, share, ticket.flow.virtual_s, ticket.id)
            if best is None or turn < best[0]:
                best = (turn, ticket)
        if best is None:
            raise IndexError("an empty lane has no head")
        return best

    def oldest(self) -> Ticket:
        """Who came first of all; raises `IndexError` when the lane is empty."""
        while self._arrivals[0][1].lane is not self:
            heapq.heappop(self._arrivals)
        return self._arrivals[0][1]
