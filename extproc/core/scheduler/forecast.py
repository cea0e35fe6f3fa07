"""When a waiting request will be served: its position, and how fast its endpoints free slots.

An endpoint with `slots` slots that are held for `slot_s` seconds on average frees
`slots / slot_s` of them a second. Who stands at position n waits until n slots were freed by
the endpoints that it may use. That is no later than when n of the answers that run there have
come to the length that they were asked for, as looks at them tell. While nothing of that is
known, the pace of the line tells.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from extproc.core.constraints import UNCONSTRAINED
from extproc.core.prediction.latency import refresh_s
from extproc.core.queue.drain_rate import DrainRate
from extproc.core.queue.ticket import Ticket
from extproc.core.selection.ranking_cache import MAX_RANKINGS
from extproc.core.slots.model_pools import slot_pool

if TYPE_CHECKING:
    from extproc.core.constraints import Constraints
    from extproc.core.queue.constraint_queue import ConstraintQueue
    from extproc.core.queue.flow_queue import FlowQueue, TenantQueue
    from extproc.core.request import Request
    from extproc.core.resolved_request import ResolvedRequest
    from extproc.core.scheduler.state import State
    from extproc.core.selection.ranking import Ranking
    from extproc.core.slots.lease import Lease

MAX_COUNTED = 4096
"""Who stands further back in one flow is told to stand there: nobody counts on."""
NEWEST = 2**62
"""The number of a ticket that was not drawn."""


class QueuePosition(NamedTuple):
    """Where a ticket stands: `position` (from 1) of `of` who wait for the same endpoints, and
    in how many seconds its turn comes, None while nothing was learned."""

    position: int
    of: int
    expected_s: float | None


class Outlook(NamedTuple):
    """Slots that some endpoints free a second, and what runs there by when it ends at the latest;
    good until `until`."""

    until: float
    rate: float
    ends: list[tuple[float, Lease]]


class Forecast:
    """Reads the state; changes nothing. A place is O(tenants + its tenant's flows +
    its position in its own flow)."""

    def __init__(self, state: State) -> None:
        self.drain_rate = DrainRate()
        self._state = state
        self._outlooks: dict[Ranking, Outlook] = {}

    def position_of(self, ticket: Ticket, now: float) -> QueuePosition:
        """Where a waiting ticket stands now."""
        return self._position(ticket, now, is_apart=ticket.constraint_queue is None, newcomers=0)

    def position_of_arrival(
        self, order: ResolvedRequest, request: Request, now: float
    ) -> QueuePosition:
        """Where a request would stand if it entered the line now."""
        flow = self._state.fairness.peek(order.objective, request.fairness_id, request.tenant)
        ticket = Ticket(NEWEST, request, now, order, flow)
        return self._position(ticket, now, is_apart=False, newcomers=1)

    def _position(
        self, ticket: Ticket, now: float, *, is_apart: bool, newcomers: int
    ) -> QueuePosition:
        queues = self._rivals(ticket)
        of = max(1, sum(len(constraint_queue) for constraint_queue in queues) + newcomers)
        ahead = (
            0
            if is_apart
            else sum(self._ahead(ticket, constraint_queue, now) for constraint_queue in queues)
        )
        position = min(of, ahead + 1)
        return QueuePosition(
            position, of, self.expected_s(ticket.resolved.constraints, position, now)
        )

    def behind_all(self, constraints: Constraints, now: float) -> QueuePosition:
        """The last place of those who wait for the same endpoints; as `expected_s`."""
        line = self._state.queue
        if constraints == UNCONSTRAINED:
            of = 1 + len(line)
        else:
            queues = map(line.constraint_queue, (constraints, UNCONSTRAINED))
            of = 1 + sum(
                len(constraint_queue) for constraint_queue in queues if constraint_queue is not None
            )
        return QueuePosition(of, of, self.expected_s(constraints, of, now))

    def expected_s(self, constraints: Constraints, position: int, now: float) -> float | None:
        """Seconds until that many slots were freed by the endpoints that suit. O(position), where
        as many answers run there of which the longest possible time is known."""
        outlook = self._outlook(constraints, now)
        usual_s = position / outlook.rate if outlook.rate else inf
        expected_s = min(usual_s, self._last_end(outlook.ends, position) - now)
        return self.drain_rate.expected_s(position) if expected_s == inf else max(0.0, expected_s)

    def _last_end(self, ends: list[tuple[float, Lease]], position: int) -> float:
        """When that many of those answers will have ended, but for those that have by now."""
        if position > len(ends):
            return inf
        left = position
        for end, lease in ends:
            left -= self._state.in_flight.get(lease) is not None
            if not left:
                return end
        return inf

    def _rivals(self, ticket: Ticket) -> list[ConstraintQueue]:
        """The lanes whose tickets want some of the same endpoints: its own and the open one."""
        line = self._state.queue
        if ticket.resolved.constraints == UNCONSTRAINED:
            return list(line.constraint_queues())
        found = [
            ticket.constraint_queue,
            line.constraint_queue(ticket.resolved.constraints),
            line.constraint_queue(UNCONSTRAINED),
        ]
        return list(
            {
                id(constraint_queue): constraint_queue
                for constraint_queue in found
                if constraint_queue is not None
            }.values()
        )

    def _ahead(self, ticket: Ticket, constraint_queue: ConstraintQueue, now: float) -> int:
        """How many of a lane will go before the ticket."""
        slo_attainment = self._state.slo_attainment
        share = slo_attainment.share(ticket.subqueue_key[1], now)
        ahead = 0
        for (criticality, promise), queue in constraint_queue.queues.items():
            if criticality > ticket.criticality:
                continue
            other = slo_attainment.share(promise, now)
            if criticality < ticket.criticality or other < share:
                ahead += len(queue)
            elif other == share:
                ahead += self._ahead_in_turn(ticket, queue)
        return ahead

    def _ahead_in_turn(self, ticket: Ticket, queue: TenantQueue) -> int:
        """Tenants take turns by weight: of each as many go first as will have gone of its own."""
        tenant = ticket.flow.tenant
        waiting = dict(queue.tenants())
        own = waiting.pop(tenant, None)
        index = 0 if own is None else self._ahead_in_tenant(ticket, own)
        ahead = index
        for other, flows in waiting.items():
            turns = (index + 1) * other.weight / tenant.weight
            is_first = other.virtual_s <= tenant.virtual_s
            ahead += min(len(flows), int(turns + (0.5 if is_first else -0.5)))
        return ahead

    def _ahead_in_tenant(self, ticket: Ticket, queue: FlowQueue) -> int:
        """Its flows take turns, too."""
        own = queue.tickets_of(ticket.flow)
        index = ahead = sum(1 for id_ in islice(own, MAX_COUNTED) if id_ < ticket.id)
        for tickets in queue:
            other = next(iter(tickets.values())).flow
            if other is not ticket.flow:
                is_first = other.virtual_s <= ticket.flow.virtual_s
                ahead += min(len(tickets), index + is_first)
        return ahead

    def _outlook(self, constraints: Constraints, now: float) -> Outlook:
        """Of the suiting endpoints, worked out once in a while."""
        state = self._state
        picker = state.rankings.at(constraints)
        known = self._outlooks.get(picker)
        if known is not None and now < known.until:
            return known
        if len(self._outlooks) > MAX_RANKINGS:
            self._outlooks.clear()
        rate = 0.0
        ends: list[tuple[float, Lease]] = []
        has_learned = state.latency.has_learned
        for address, slots in picker.members():
            endpoint = state.fleet.get(address)
            assert endpoint is not None, "only members are ranked"
            pool = slot_pool(
                endpoint, state.ledger.endpoint_slots(address), constraints.model
            ).slots
            if has_learned:
                slot_s = max(1e-3, state.latency.estimate(address, now).slot_s)
                rate += max(0, slots - pool.foreign_slots) / slot_s
            for lease in pool.leases.values():
                run = state.in_flight.get(lease)
                if run is not None and run.ends_by < inf:
                    ends.append((run.ends_by, lease))
        ends.sort(key=itemgetter(0))
        outlook = self._outlooks[picker] = Outlook(now + refresh_s(len(picker)), rate, ends)
        return outlook
