"""Forecasts when a queued request is served, from its position and the rate of freed slots.

An endpoint with `slots` slots, each in use for `slot_s` seconds on average, frees `slots / slot_s`
slots a second. The request at position n waits until the eligible endpoints have freed n slots.
That is no later than when n of the responses that run there reach the length that they were asked
for, as scrapes show it. While none of this is known, the drain rate of the queue is used.
"""

from itertools import islice
from math import inf
from operator import itemgetter
from typing import NamedTuple

from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.prediction.latency import refresh_s
from extproc.core.queue.constraint_queue import ConstraintQueue
from extproc.core.queue.drain_rate import DrainRate
from extproc.core.queue.flow_queue import FlowQueue, TenantQueue
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request
from extproc.core.resolved_request import ResolvedRequest
from extproc.core.scheduler.state import State
from extproc.core.selection.ranking import Ranking
from extproc.core.selection.ranking_cache import MAX_RANKINGS
from extproc.core.slots.lease import Lease
from extproc.core.slots.model_pools import slot_pool

MAX_COUNTED = 4096
"""Positions in one flow are counted up to this number; all later ones get the same."""
NEWEST = 2**62
"""The number of a ticket that does not exist yet."""


class QueuePosition(NamedTuple):
    """The queue position of a ticket: `position` (from 1) among `queued` tickets for the same
    endpoints, and the seconds until it is served, None if nothing is known yet."""

    position: int
    queued: int
    expected_s: float | None


class Outlook(NamedTuple):
    """The slots that some endpoints free per second, and the leases there with their latest ends;
    valid until `until`."""

    until: float
    rate: float
    ends: list[tuple[float, Lease]]


class Forecast:
    """Reads the state; changes nothing. A position is O(tenants + its tenant's flows + its position
    in its own flow)."""

    def __init__(self, state: State) -> None:
        self.drain_rate = DrainRate()
        self._state = state
        self._outlooks: dict[Ranking, Outlook] = {}

    def position_of(self, ticket: Ticket, now: float) -> QueuePosition:
        """The current position of a queued ticket."""
        return self._position(
            ticket, now, has_reservation=ticket.constraint_queue is None, arrivals=0
        )

    def position_of_arrival(
        self, resolved: ResolvedRequest, request: Request, now: float
    ) -> QueuePosition:
        """The position that a request would get if it were queued now."""
        flow = self._state.fairness.peek(resolved.objective, request.fairness_id, request.tenant)
        ticket = Ticket(NEWEST, request, now, resolved, flow)
        return self._position(ticket, now, has_reservation=False, arrivals=1)

    def _position(
        self, ticket: Ticket, now: float, *, has_reservation: bool, arrivals: int
    ) -> QueuePosition:
        queues = self._competing_queues(ticket)
        of = max(1, sum(map(len, queues)) + arrivals)
        ahead = 0 if has_reservation else sum(self._ahead(ticket, queue, now) for queue in queues)
        position = min(of, ahead + 1)
        return QueuePosition(
            position, of, self.expected_s(ticket.resolved.constraints, position, now)
        )

    def behind_all(self, constraints: Constraints, now: float) -> QueuePosition:
        """The last position among the tickets for the same endpoints; see `expected_s`."""
        queue = self._state.queue
        if constraints == UNCONSTRAINED:
            of = 1 + len(queue)
        else:
            found = map(queue.constraint_queue, (constraints, UNCONSTRAINED))
            of = 1 + sum(len(one) for one in found if one is not None)
        return QueuePosition(of, of, self.expected_s(constraints, of, now))

    def expected_s(self, constraints: Constraints, position: int, now: float) -> float | None:
        """Seconds until the eligible endpoints have freed that many slots. O(position) if the
        longest possible times of that many responses there are known."""
        outlook = self._outlook(constraints, now)
        usual_s = position / outlook.rate if outlook.rate else inf
        expected_s = min(usual_s, self._last_end(outlook.ends, position) - now)
        return self.drain_rate.expected_s(position) if expected_s == inf else max(0.0, expected_s)

    def _last_end(self, ends: list[tuple[float, Lease]], position: int) -> float:
        """When that many of those responses have ended, without those that ended already."""
        if position > len(ends):
            return inf
        left = position
        for end, lease in ends:
            left -= self._state.in_flight.get(lease) is not None
            if not left:
                return end
        return inf

    def _competing_queues(self, ticket: Ticket) -> list[ConstraintQueue]:
        """The constraint queues that compete for its endpoints: its own and the unconstrained."""
        queue = self._state.queue
        if ticket.resolved.constraints == UNCONSTRAINED:
            return list(queue.constraint_queues())
        found = [
            ticket.constraint_queue,
            queue.constraint_queue(ticket.resolved.constraints),
            queue.constraint_queue(UNCONSTRAINED),
        ]
        return list({id(one): one for one in found if one is not None}.values())

    def _ahead(self, ticket: Ticket, constraint_queue: ConstraintQueue, now: float) -> int:
        """How many tickets of a constraint queue are served before the ticket."""
        slo_attainment = self._state.slo_attainment
        share = slo_attainment.share(ticket.subqueue_key[1], now)
        ahead = 0
        for (criticality, objective), queue in constraint_queue.queues.items():
            if criticality > ticket.criticality:
                continue
            other = slo_attainment.share(objective, now)
            if criticality < ticket.criticality or other < share:
                ahead += len(queue)
            elif other == share:
                ahead += self._ahead_by_tenant(ticket, queue)
        return ahead

    def _ahead_by_tenant(self, ticket: Ticket, queue: TenantQueue) -> int:
        """Tenants alternate by weight: each is served as often as the ticket's own before it."""
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
        """The flows of a tenant alternate, too."""
        own = queue.tickets_of(ticket.flow)
        index = ahead = sum(1 for id_ in islice(own, MAX_COUNTED) if id_ < ticket.id)
        for tickets in queue:
            other = next(iter(tickets.values())).flow
            if other is not ticket.flow:
                is_first = other.virtual_s <= ticket.flow.virtual_s
                ahead += min(len(tickets), index + is_first)
        return ahead

    def _outlook(self, constraints: Constraints, now: float) -> Outlook:
        """For the eligible endpoints; recomputed at intervals."""
        state = self._state
        ranking = state.rankings.at(constraints)
        known = self._outlooks.get(ranking)
        if known is not None and now < known.until:
            return known
        if len(self._outlooks) > MAX_RANKINGS:
            self._outlooks.clear()
        rate = 0.0
        ends: list[tuple[float, Lease]] = []
        has_learned = state.latency.has_learned
        for address, slots in ranking.members():
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
        outlook = self._outlooks[ranking] = Outlook(now + refresh_s(len(ranking)), rate, ends)
        return outlook
