"""Forecasts when a queued request is served, from its position and the rate of freed slots.

An endpoint with `slots` slots, each in use for `slot_s` seconds on average, frees `slots / slot_s`
slots a second. Requests of higher criticality that will arrive meanwhile take a part of them: the
share that such requests had of the recent assignments there. The request at position n waits until
the eligible endpoints have freed n slots and that part. That is no later than when as many of the
responses that run there reach the length that they were asked for, as scrapes show it. Slots that
the tokens of a shared context do not suffice for free none. While none of this is known, the drain
rate of the queue is used.

Where the order is by size, the tickets ahead in the same flow count by their expected slot-seconds,
and the slots that smaller requests take which arrive meanwhile are left out, by their share in the
recently queued ones. Nobody passes after the bound of the order, which limits the result.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import nlargest
from itertools import chain, islice
from math import ceil, inf
from operator import itemgetter
from typing import NamedTuple

from extproc.core.bounds import Bound, BoundsOfRequest
from extproc.core.constraints import Constraints, unconstrained
from extproc.core.learning.request_sizes import SizeClasses
from extproc.core.objective import Criticality
from extproc.core.prediction.latency import refresh_s
from extproc.core.queue.constraint_queue import ConstraintQueue
from extproc.core.queue.fair_queueing import Flow
from extproc.core.queue.flow_queue import FlowQueue, TenantQueue
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request, ResolvedRequest
from extproc.core.request_groups import Group, full_group
from extproc.core.selection.ranking import Ranking
from extproc.core.selection.ranking_cache import MAX_RANKINGS
from extproc.core.slots.lease import Lease
from extproc.core.slots.model_pools import slot_pool
from extproc.core.state import State
from extproc.core.views.flow_positions import FlowPositions, arrived_before

NEWEST = 2**62
"""The number of a ticket that does not exist yet."""


class QueuePosition(NamedTuple):
    """The queue position of a ticket: `position` (from 1) among `queued` tickets for the same
    endpoints, and the seconds until it is served, None if nothing is known yet."""

    position: int
    queued: int
    expected_s: float | None


class Outlook(NamedTuple):
    """The slots that some endpoints free per second, the share of them that requests of higher
    criticality take, by criticality, and the leases there with their latest ends; valid until
    `until`. `slots` are those that free them."""

    until: float
    rate: float
    slots: int
    taken_shares: dict[Criticality, float]
    ends: list[tuple[float, Lease]]


KnownPositions = dict[tuple[FlowQueue, Flow], FlowPositions]
"""The orders of some flows: they are sorted once for many positions."""


class Forecast:
    """Reads the state; changes nothing. A position is O(tenants + its tenant's flows + its position
    in its own flow)."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._least_share = 1 / state.options.aging.every
        self._outlooks: dict[Ranking, Outlook] = {}

    def position_of(self, ticket: Ticket, now: float) -> QueuePosition:
        """The current position of a queued ticket."""
        return next(self.positions_of((ticket,), now))

    def positions_of(self, tickets: Iterable[Ticket], now: float) -> Iterator[QueuePosition]:
        """The current position of each of these queued tickets."""
        known: KnownPositions = {}
        held_back: dict[Group, list[int]] = {}
        for ticket in tickets:
            group = ticket.held_by
            if group is None:
                has_reservation = ticket.queued_in is None
                yield self._position(
                    ticket, now, known, has_reservation=has_reservation, arrivals=0
                )
                continue
            if group not in held_back:
                held_back[group] = self._state.queue.held_back.ids_of(group)
            before = bisect_left(held_back[group], ticket.id)
            yield self._behind_group(ticket, group, before, now, known, arrivals=0)

    def position_of_arrival(
        self, resolved: ResolvedRequest, request: Request, now: float
    ) -> QueuePosition:
        """The position that a request would get if it were queued now."""
        flow = self._state.fairness.peek(resolved.objective, request.fairness_id, request.tenant)
        ticket = Ticket(NEWEST, request, now, resolved, flow)
        size = self._state.size_of(resolved, request, now)
        ticket.expected_slot_s, ticket.order_class = size
        group = full_group(resolved.groups)
        if group is not None:
            return self._behind_group(ticket, group, group.held_back, now, {}, arrivals=1)
        return self._position(ticket, now, {}, has_reservation=False, arrivals=1)

    def _position(
        self,
        ticket: Ticket,
        now: float,
        known: KnownPositions,
        *,
        has_reservation: bool,
        arrivals: int,
    ) -> QueuePosition:
        queues = self._competing_queues(ticket)
        of = max(1, sum(map(len, queues)) + arrivals)
        ahead = 0
        if not has_reservation:
            ahead = sum(self._ahead(ticket, queue, now, known) for queue in queues)
        position = min(of, ahead + 1)
        sizes = self._state.sizes
        bounds = ticket.resolved.bounds
        is_last_come = any(bound.limits.is_last_come for bound in bounds)
        if sizes is None or has_reservation or is_last_come or not sizes.classes.usual_slot_s:
            constraints = ticket.resolved.constraints
            expected_s = self._expected_s(constraints, ticket.criticality, position, now)
        else:
            expected_s = self._expected_by_size_s(
                sizes.classes, ticket, queues, position, now, known
            )
        if bounds and not has_reservation:
            expected_s = self._at_least_s(expected_s, self._under_bounds_s(ticket, now, known))
        return QueuePosition(position, of, expected_s)

    def _behind_group(
        self,
        ticket: Ticket,
        group: Group,
        before: int,
        now: float,
        known: KnownPositions,
        *,
        arrivals: int,
    ) -> QueuePosition:
        """The position of a ticket that a session or a flow holds back, or would: behind those that
        are served before it if it is let in, and the `before` ones that are let in before it. When
        a request of its group ends is not known."""
        queues = self._competing_queues(ticket)
        of = sum(map(len, queues)) + group.held_back + arrivals
        ahead = sum(self._ahead(ticket, queue, now, known) for queue in queues)
        return QueuePosition(min(of, ahead + before + 1), of, None)

    def _under_bounds_s(self, ticket: Ticket, now: float, known: KnownPositions) -> float:
        """Seconds until the bounds of a ticket have a place for it; 0 if they have one."""
        longest_s = 0.0
        for bound in ticket.resolved.bounds:
            if bound.is_full:
                queues = self._state.queue.under(bound)
                ahead = sum(self._ahead(ticket, queue, now, known) for queue in queues)
                place_s = self._place_s(bound, ahead + 1, ticket.resolved.constraints, now)
                longest_s = max(longest_s, place_s)
        return longest_s

    def _place_s(self, bound: Bound, position: int, constraints: Constraints, now: float) -> float:
        """Seconds until that many requests under a full bound have ended, as the eligible endpoints
        serve; 0 while nothing is known of these."""
        outlook = self._outlook(constraints, now)
        most = bound.limits.running
        if not outlook.rate or not most:
            return 0.0
        return position * outlook.slots / outlook.rate / most

    def _at_least_s(self, expected_s: float | None, least_s: float) -> float | None:
        """The longer of the two; None if nothing is known of the first."""
        return None if expected_s is None else max(expected_s, least_s)

    def _expected_by_size_s(
        self,
        sizes: SizeClasses,
        ticket: Ticket,
        queues: list[ConstraintQueue],
        position: int,
        now: float,
        known: KnownPositions,
    ) -> float | None:
        """Seconds until a ticket is served where the order is by size."""
        ahead = arrived = 0
        work_s = 0.0
        for queue in queues:
            tenants = queue.queues.get(ticket.subqueue_key)
            own = None if tenants is None else tenants.of_tenant(ticket.flow.tenant)
            if own is not None:
                positions = self._positions(ticket.flow, own, now, known)
                ahead += positions.ahead_of(ticket)
                work_s += positions.work_ahead_s(ticket)
                arrived += arrived_before(ticket, own.tickets_of(ticket.flow))
        others = max(1, position - ahead)
        left_share = max(self._least_share, 1.0 - sizes.share_below(ticket.order_class))
        slots = (others + work_s / sizes.usual_slot_s) / left_share
        constraints, criticality = ticket.resolved.constraints, ticket.criticality
        by_size_s = self._expected_s(constraints, criticality, slots, now)
        by_arrival_s = self._expected_s(constraints, criticality, others + arrived, now)
        if by_size_s is None or by_arrival_s is None:
            return None
        until = self._state.queue.order.overtaken_until(ticket.entered_at)
        return min(by_size_s, max(0.0, until - now) + by_arrival_s)

    def behind_all(
        self, constraints: Constraints, now: float, bounds: BoundsOfRequest = ()
    ) -> QueuePosition:
        """The last position among the tickets for the same endpoints, for a standard request under
        these bounds."""
        queue = self._state.queue
        any_of_pool = unconstrained(constraints.pool)
        if constraints == any_of_pool:
            of = 1 + queue.assignable_for(constraints.pool)
        else:
            found = (queue.with_constraints(constraints), queue.with_constraints(any_of_pool))
            of = 1 + sum(map(len, chain.from_iterable(found)))
        expected_s = self._expected_s(constraints, Criticality.STANDARD, of, now)
        for bound in bounds:
            if bound.is_full:
                place_s = self._place_s(bound, bound.queued + 1, constraints, now)
                expected_s = self._at_least_s(expected_s, place_s)
        return QueuePosition(of, of, expected_s)

    def all_served_s(self, now: float) -> float | None:
        """Seconds until the last queued ticket is served that no session and no flow holds back;
        None if nothing is known yet, or none is queued. Of many constraint queues only the longest
        count."""
        queue = self._state.queue
        longest = nlargest(MAX_RANKINGS, queue.constraint_queues(), len)
        found = [self._last_served_s(one, now) for one in longest]
        reserved = islice(queue.with_reservations(), MAX_RANKINGS)
        found += [place.expected_s for place in self.positions_of(reserved, now)]
        known = [expected_s for expected_s in found if expected_s is not None]
        return max(known) if len(known) == len(found) and known else None

    def _last_served_s(self, last: ConstraintQueue, now: float) -> float | None:
        """Seconds until the last ticket of a constraint queue is served."""
        queue = self._state.queue
        any_of_pool = unconstrained(last.constraints.pool)
        position = queue.assignable_for(last.constraints.pool)
        if last.constraints != any_of_pool:
            position = len(last) + sum(map(len, queue.with_constraints(any_of_pool)))
        lowest = max(criticality for criticality, _ in last.queues)
        return self._expected_s(last.constraints, lowest, position, now)

    def _expected_s(
        self, constraints: Constraints, criticality: Criticality, position: float, now: float
    ) -> float | None:
        """Seconds until the eligible endpoints have freed that many slots for requests of that
        criticality; None where nobody knows, and while no endpoint is eligible. O(position) if the
        longest possible times of that many responses there are known."""
        load = self._state.load_of(constraints.model, constraints.pool)
        if load is not None and load.ready_at is not None:
            return max(0.0, load.ready_at - now)  # what is known about its slots, if any, is old
        if not len(self._state.rankings.at(constraints)):
            return None  # until an endpoint joins, returns or is activated
        outlook = self._outlook(constraints, now)
        left_share = max(self._least_share, 1.0 - outlook.taken_shares[criticality])
        slots = position / left_share
        usual_s = slots / outlook.rate if outlook.rate else inf
        expected_s = min(usual_s, self._last_end(outlook.ends, ceil(slots - 1e-9)) - now)
        if expected_s == inf:
            return self._state.drain_rate.expected_s(position)
        return max(0.0, expected_s)

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
        constraints = ticket.resolved.constraints
        any_of_pool = unconstrained(constraints.pool)
        if constraints == any_of_pool:
            queues = queue.constraint_queues()
            return [one for one in queues if one.constraints.pool == constraints.pool]
        found = [
            *([] if ticket.queued_in is None else queue.with_constraints(ticket.constraints)),
            *queue.with_constraints(constraints),
            *queue.with_constraints(constraints._replace(context_tokens=0)),
            *queue.with_constraints(any_of_pool),
        ]
        return list({id(one): one for one in found}.values())

    def _ahead(
        self, ticket: Ticket, constraint_queue: ConstraintQueue, now: float, known: KnownPositions
    ) -> int:
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
                ahead += self._ahead_by_tenant(ticket, queue, now, known)
        return ahead

    def _ahead_by_tenant(
        self, ticket: Ticket, queue: TenantQueue, now: float, known: KnownPositions
    ) -> int:
        """Tenants alternate by weight: each is served as often as the ticket's own before it."""
        tenant = ticket.flow.tenant
        waiting = dict(queue.tenants())
        own = waiting.pop(tenant, None)
        index = 0 if own is None else self._ahead_in_tenant(ticket, own, now, known)
        ahead = index
        for other, flows in waiting.items():
            turns = (index + 1) * other.weight / tenant.weight
            is_first = other.virtual_s <= tenant.virtual_s
            ahead += min(len(flows), int(turns + (0.5 if is_first else -0.5)))
        return ahead

    def _ahead_in_tenant(
        self, ticket: Ticket, queue: FlowQueue, now: float, known: KnownPositions
    ) -> int:
        """The flows of a tenant alternate, too."""
        index = ahead = self._positions(ticket.flow, queue, now, known).ahead_of(ticket)
        for tickets in queue:
            other = next(iter(tickets.values())).flow
            if other is not ticket.flow:
                is_first = other.virtual_s <= ticket.flow.virtual_s
                ahead += min(len(tickets), index + is_first)
        return ahead

    def _positions(
        self, flow: Flow, queue: FlowQueue, now: float, known: KnownPositions
    ) -> FlowPositions:
        """The order of a flow's tickets in that queue."""
        positions = known.get((queue, flow))
        if positions is None:
            sizes = self._state.sizes
            positions = known[queue, flow] = FlowPositions(
                queue.tickets_of(flow),
                queue.order or self._state.queue.order,
                now,
                0.0 if sizes is None else sizes.classes.usual_slot_s,
            )
        return positions

    def _outlook(self, constraints: Constraints, now: float) -> Outlook:
        """For the eligible endpoints; recomputed at intervals."""
        state = self._state
        ranking = state.rankings.at(constraints)
        known = self._outlooks.get(ranking)
        if known is not None and now < known.until:
            return known
        if len(self._outlooks) > MAX_RANKINGS:
            self._outlooks.clear()
        rate, counted = 0.0, 0
        assigned = dict.fromkeys(Criticality, 0.0)
        ends: list[tuple[float, Lease]] = []
        has_learned = state.latency.has_learned
        for address, slots in ranking.members():
            endpoint = state.fleet.get(address)
            assert endpoint is not None, "only members are ranked"
            endpoint_slots = state.ledger.endpoint_slots(address)
            pool, _, _ = slot_pool(endpoint, endpoint_slots, constraints.model)
            if has_learned:
                slot_s = max(1e-3, state.latency.estimate(address, now).slot_s)
                usable = min(slots, pool.usable_slots)
                rate += max(0, usable - pool.foreign_slots) / slot_s
                counted += max(0, usable - pool.foreign_slots)
            for criticality, use in state.use_by_criticality.items():
                assigned[criticality] += use.recent_slots(address, now)
            if pool.usable_slots < pool.slots:
                continue  # the end of a response need not free enough tokens
            for lease in pool.leases.values():
                run = state.in_flight.get(lease)
                if run is not None and run.ends_by < inf:
                    ends.append((run.ends_by, lease))
        ends.sort(key=itemgetter(0))
        until = now + refresh_s(len(ranking))
        outlook = Outlook(until, rate, counted, _shares_above(assigned), ends)
        self._outlooks[ranking] = outlook
        return outlook


def _shares_above(amounts: dict[Criticality, float]) -> dict[Criticality, float]:
    """For each criticality, the share that all higher ones have of the amounts."""
    total = sum(amounts.values())
    above, shares = 0.0, {}
    for criticality in Criticality:
        shares[criticality] = above / total if total else 0.0
        above += amounts[criticality]
    return shares
