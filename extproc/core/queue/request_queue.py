"""The requests that wait for a slot.

Tickets with equal constraints and bounds form one constraint queue. So an endpoint finds the
tickets that it can serve, and no ticket waits behind one with others. Without models, objectives,
tenants and bounds there is one constraint queue, and it is served in order of arrival. Tickets
whose session or flow is at its limit are held back, in no constraint queue, until it lets them in.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator

from extproc.core.address import Address
from extproc.core.bounds import Bound, BoundsOfRequest, is_held_back
from extproc.core.constraints import NO_POOL, Constraints, IndexKey
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.objective import Criticality
from extproc.core.queue.constraint_queue import ConstraintQueue
from extproc.core.queue.fair_queueing import FairQueueing, Flow
from extproc.core.queue.flow_order import ARRIVAL_ORDER, LAST_COME_ORDER, QueueOrder
from extproc.core.queue.held_tickets import HeldTickets
from extproc.core.queue.ticket import UNKNOWN_SIZE, ExpectedSize, Ticket, TicketIds
from extproc.core.request import UNCONSTRAINED_REQUEST, Request, ResolvedRequest
from extproc.core.request_groups import Group, full_group
from extproc.core.slots.endpoint_slots import EndpointSlots, Reservation
from extproc.core.slots.token_demand import TokenDemand

QueueKey = tuple[Constraints, BoundsOfRequest]
FEW_QUEUES = 8
"""Up to this number, checking every constraint queue is faster than using the index."""


class RequestQueue:
    """All queued requests. Every call is O(log n), amortised."""

    def __init__(
        self, fairness: FairQueueing | None = None, order: QueueOrder = ARRIVAL_ORDER
    ) -> None:
        self.order = order
        """The order within each flow."""
        self._fairness = FairQueueing() if fairness is None else fairness
        self._tickets: OrderedDict[int, Ticket] = OrderedDict()
        self._by_criticality: dict[Criticality, OrderedDict[int, Ticket]] = {
            criticality: OrderedDict() for criticality in Criticality
        }
        self._queues: dict[QueueKey, ConstraintQueue] = {}
        self._indexed: dict[IndexKey, dict[QueueKey, ConstraintQueue]] = {}
        self._bounded: dict[Constraints, dict[BoundsOfRequest, ConstraintQueue]] = {}
        """Those of tickets that are under bounds."""
        self.held_back = HeldTickets()
        """Those whose session or flow is at its limit."""
        self._reserved: dict[int, Ticket] = {}
        self._reserved_weights: Counter[int] = Counter()
        self._deadlines: list[tuple[float, int, Ticket]] = []
        self._is_unsorted = False
        """Whether tickets are queued behind later ones: thousands return together when a front is
        lost, so they are sorted once, when their order is wanted."""
        self._by_pool: Counter[str] = Counter()
        """How many tickets are for each pool, where pools are configured."""
        self._ids = TicketIds()
        self._taken_id = self._free_id = -1
        self.body_bytes = 0
        """Bytes of request bodies that are held for queued requests."""

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        self._sort()
        return iter(self._tickets.values())

    def enter(
        self,
        request: Request,
        now: float,
        resolved: ResolvedRequest = UNCONSTRAINED_REQUEST,
        size: ExpectedSize = UNKNOWN_SIZE,
    ) -> Ticket:
        """Queue a request, in its flow among those with its constraints."""
        return self._enter(self._ids.next(now), request, now, resolved, size)

    def skip_to(self, last_id: int, now: float) -> None:
        """Let the next ticket's id be above `last_id`. Those below were given by other leaders."""
        self._ids.begin(last_id, now)

    def place(
        self,
        id_: int | None,
        request: Request,
        entered_at: float,
        resolved: ResolvedRequest,
        size: ExpectedSize = UNKNOWN_SIZE,
        deadline: float | None = None,
    ) -> Ticket:
        """Queue a request where it belongs: as ticket `id_` if it was queued before, else where it
        would be, had it been queued at `entered_at`; behind another that has that place. Its time
        in the queue began then, unless it has another `deadline`."""
        if id_ is None:
            id_ = self._ids.at(entered_at)
        if id_ in self._tickets:
            id_ = self._free_after(id_)
        is_back = id_ <= self._ids.last
        self._ids.use(id_, entered_at)
        ticket = self._enter(
            id_, request, entered_at, resolved, size, is_back=is_back, deadline=deadline
        )
        self._is_unsorted |= is_back
        return ticket

    def _free_after(self, id_: int) -> int:
        """The next id that no ticket has; many may ask for the same one after each other."""
        free = self._free_id if id_ == self._taken_id else id_ + 1
        while free in self._tickets:
            free += 1
        self._taken_id, self._free_id = id_, free + 1
        return free

    def _sort(self) -> None:
        if self._is_unsorted:
            self._is_unsorted = False
            for tickets in (self._tickets, *self._by_criticality.values()):
                for id_ in sorted(tickets):
                    tickets.move_to_end(id_)

    def _enter(
        self,
        id_: int,
        request: Request,
        now: float,
        resolved: ResolvedRequest,
        size: ExpectedSize,
        *,
        is_back: bool = False,
        deadline: float | None = None,
    ) -> Ticket:
        ticket = Ticket(id_, request, now, resolved, self._flow_of(resolved, request))
        pool = request.pool
        ticket.expected_slot_s, ticket.order_class = size
        if deadline is not None:
            ticket.deadline = deadline
        try:
            self._tickets[ticket.id] = ticket
            if pool:
                self._by_pool[pool] += 1
            self.body_bytes += ticket.body_bytes
            self._by_criticality[ticket.criticality][ticket.id] = ticket
            heapq.heappush(self._deadlines, (ticket.deadline, ticket.id, ticket))
            for bound in resolved.bounds:
                bound.queued += 1
            if resolved.groups and (group := self._holds_back(ticket, is_back=is_back)) is not None:
                self.held_back.hold(ticket, group)
            else:
                self._may_be_assigned(ticket, is_back=is_back)
        except Exception:
            ticket.is_waiting = False  # no index refers to it
            raise
        return ticket

    def _holds_back(self, ticket: Ticket, *, is_back: bool) -> Group | None:
        """The group that holds back a ticket. One that comes back to its place waits for its turn
        even if there is room: of several, that which arrived first is let in."""
        groups = ticket.resolved.groups
        return full_group(groups) or (groups[0] if is_back else None)

    def _may_be_assigned(self, ticket: Ticket, *, is_back: bool) -> None:
        """From now on the ticket is in its constraint queue, and counts in its groups."""
        if self.assignable_for(ticket.request.pool) == 1:
            self._fairness.contention_began(ticket.request.pool)
        self._fairness.entered(ticket.flow)
        for group in ticket.resolved.groups:
            group.request_began()
        self._queue(ticket).enter(ticket, is_back=is_back)

    def let_in(self, group: Group, now: float) -> list[Ticket]:
        """Those that the group held back and need not any more, those that arrived first before
        others; each takes its place in its constraint queue by its arrival."""
        found: list[Ticket] = []
        while not group.is_full and (ticket := self.held_back.take_first(group)) is not None:
            other = full_group(ticket.resolved.groups)
            if other is not None:
                self.held_back.list_with(other, ticket)
                continue
            self.held_back.release(ticket)
            ticket.held_by, ticket.waits_since = None, now
            ticket.flow = self._flow_of(ticket.resolved, ticket.request)
            self._may_be_assigned(ticket, is_back=True)
            found.append(ticket)
        return found

    def _flow_of(self, resolved: ResolvedRequest, request: Request) -> Flow:
        return self._fairness.flow(resolved.objective, request.fairness_id, request.tenant)

    def first_arrived(self) -> Ticket | None:
        """The ticket that arrived first, or None when the queue is empty."""
        self._sort()
        return next(iter(self._tickets.values()), None)

    def first_assignable(self) -> Ticket | None:
        """The same without those that are held back; O(constraint queues + reservations) if there
        are any."""
        if not self.held_back:
            return self.first_arrived()
        arrived = [queue.first_arrived() for queue in self._queues.values()]
        return min([*arrived, *self._reserved.values()], default=None)

    def newest_below(
        self,
        criticality: Criticality,
        least_bytes: int = 0,
        bounds: BoundsOfRequest = (),
        pool: str = NO_POOL,
    ) -> Ticket | None:
        """The newest ticket of the lowest criticality below this one, or None. With `least_bytes`
        the newest that holds that many body bytes, with `bounds` the newest that is under all of
        these, with `pool` the newest of that pool: O(tickets)."""
        self._sort()
        for lower in reversed(Criticality):  # pragma: no branch: nothing is below CRITICAL
            if lower <= criticality:
                break
            for ticket in reversed(self._by_criticality[lower].values()):
                if ticket.makes_place(least_bytes, bounds, pool):
                    return ticket
        return None

    def newest_held_back(
        self,
        criticality: Criticality,
        least_bytes: int = 0,
        bounds: BoundsOfRequest = (),
        pool: str = NO_POOL,
    ) -> Ticket | None:
        """The newest ticket of this criticality or below that its session or its flow holds back,
        or None. The others are as in `newest_below`: O(tickets that are held back)."""
        found: Ticket | None = None
        for ticket in self.held_back:
            if ticket.criticality < criticality or (found is not None and ticket < found):
                continue
            if ticket.makes_place(least_bytes, bounds, pool):
                found = ticket
        return found

    def count_for(self, pool: str) -> int:
        """The number of queued requests for this pool; all of them without pools."""
        return self._by_pool[pool] if pool else len(self._tickets)

    def assignable_for(self, pool: str) -> int:
        """The same without those that are held back."""
        return self.count_for(pool) - self.held_back.count_for(pool)

    @property
    def has_assignable(self) -> bool:
        """Whether any is queued that is not held back."""
        return bool(self._tickets) and len(self._tickets) > len(self.held_back)

    def count_of(self, criticality: Criticality) -> int:
        """The number of queued requests of this criticality."""
        return len(self._by_criticality[criticality])

    def assignable_of(self, criticality: Criticality) -> int:
        """The same without those that are held back."""
        return self.count_of(criticality) - self.held_back.count_of(criticality)

    def depths_by_pool(self, pools: Iterable[str]) -> dict[tuple[str, ...], float]:
        """The number of queued requests by criticality and pool. O(n)."""
        found: dict[tuple[str, ...], float] = {
            (each.label, pool): 0 for each in Criticality for pool in pools
        }
        for ticket in self._tickets.values():
            key = ticket.criticality.label, ticket.request.pool
            found[key] = found.get(key, 0) + 1
        return found

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket; raises `KeyError` if it is not queued."""
        del self._tickets[ticket.id]
        if ticket.request.pool:
            self._by_pool[ticket.request.pool] -= 1
            if not self._by_pool[ticket.request.pool]:
                del self._by_pool[ticket.request.pool]
        self.body_bytes -= ticket.body_bytes
        for bound in ticket.resolved.bounds:
            bound.queued -= 1
        ticket.is_waiting = False
        del self._by_criticality[ticket.criticality][ticket.id]
        if ticket.held_by is not None:
            self.held_back.release(ticket)
        else:
            self._take_out(ticket)
            self._fairness.left(ticket.flow)
            for group in ticket.resolved.groups:
                group.request_ended()
        if len(self._deadlines) > 2 * len(self._tickets) + 64:
            self._deadlines = [entry for entry in self._deadlines if entry[2].is_waiting]
            heapq.heapify(self._deadlines)

    def expired(self, now: float) -> list[Ticket]:
        """The queued tickets whose deadline has passed, in order of deadline. Each is returned
        once, and the caller must remove it."""
        late = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            late.append(heapq.heappop(self._deadlines)[2])
        return late

    def next_deadline(self) -> float | None:
        """When `expired` must be called next, or None."""
        while self._deadlines and not self._deadlines[0][2].is_waiting:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    # Derived state

    def faults(self) -> list[str]:
        """Differences between the indexes and the queued tickets, for the log. O(n)."""
        found = [
            f"ticket {id_} is in the queue and does not wait"
            for id_, ticket in self._tickets.items()
            if not ticket.is_waiting
        ]
        count = len(self._tickets)
        by_criticality = sum(len(tickets) for tickets in self._by_criticality.values())
        held_back = len(self.held_back)
        placed = sum(map(len, self._queues.values())) + len(self._reserved) + held_back
        timed = sum(entry[2].is_waiting for entry in self._deadlines)
        waiting = sum(flow.waiting for flow in self._fairness.flows())
        for what, number in (
            ("by criticality", by_criticality),
            ("by constraints, with reservations or held back", placed),
            ("with a deadline", timed),
            ("by flow or held back", waiting + held_back),
        ):
            if number != count:
                found.append(f"{count} tickets wait, and {number} {what}")
        found += [
            f"ticket {ticket.id} is listed with a reservation and has none"
            for ticket in self._reserved.values()
            if ticket.reservation is None
            or ticket.reservation.pool.reservation is not ticket.reservation
        ]
        found += [
            f"ticket {ticket.id} is held back by a {ticket.held_by.key.kind.value} below its limit"
            for ticket in self.held_back
            if ticket.held_by is not None and ticket.held_by.may_let_in
        ]
        by_pool = Counter(one.request.pool for one in self._tickets.values() if one.request.pool)
        if by_pool != self._by_pool:
            found.append(f"{dict(by_pool)} tickets wait by pool, and not {dict(self._by_pool)}")
        body_bytes = sum(ticket.body_bytes for ticket in self._tickets.values())
        if body_bytes != self.body_bytes:
            found.append(f"{body_bytes} bytes of bodies wait, and {self.body_bytes} are counted")
        return found

    def rebuild(self) -> None:
        """Derive the order and every index again from the queued tickets, and count them in their
        groups, which count the leases only. O(n log n)."""
        waiting = sorted(ticket for ticket in self._tickets.values() if ticket.is_waiting)
        self._tickets = OrderedDict()
        for tickets in self._by_criticality.values():
            tickets.clear()
        self._queues.clear()
        self._indexed.clear()
        self._bounded.clear()
        self._reserved.clear()
        self._reserved_weights.clear()
        self.held_back.clear()
        self._deadlines = [(ticket.deadline, ticket.id, ticket) for ticket in waiting]
        heapq.heapify(self._deadlines)
        self.body_bytes = sum(ticket.body_bytes for ticket in waiting)
        self._by_pool = Counter(one.request.pool for one in waiting if one.request.pool)
        for ticket in waiting:
            if ticket.pinned_to is not None:
                ticket.constraints = ticket.resolved.constraints  # its affinity wait ends
            ticket.reservation = None
            self._tickets[ticket.id] = ticket
            self._by_criticality[ticket.criticality][ticket.id] = ticket
            group = full_group(ticket.resolved.groups)
            if group is not None:
                ticket.queued_in = None
                self.held_back.hold(ticket, group)
                continue
            if ticket.held_by is not None:
                ticket.held_by, ticket.flow = None, self._flow_of(ticket.resolved, ticket.request)
            for counting in ticket.resolved.groups:
                counting.request_began()
            self._queue(ticket).enter(ticket)
        self._fairness.recount_waiting(one.flow for one in waiting if one.held_by is None)

    # Constraint queues

    def queues_for(self, endpoint: Endpoint) -> list[ConstraintQueue]:
        """The constraint queues that are not empty, that the endpoint can serve, and that no bound
        holds back."""
        found: Collection[ConstraintQueue] = self._queues.values()
        if len(self._queues) > FEW_QUEUES:
            indexed: dict[QueueKey, ConstraintQueue] = {}
            for key in (None, endpoint.address, *endpoint.models_by_name):
                indexed.update(self._indexed.get(key, {}))
            found = indexed.values()
        return [
            queue
            for queue in found
            if is_eligible(queue.constraints, endpoint) and not is_held_back(queue.bounds)
        ]

    def has_any_for(self, endpoint: Endpoint) -> bool:
        """Whether a request is queued that the endpoint can serve."""
        if self.queues_for(endpoint):
            return True
        return any(is_eligible(ticket.constraints, endpoint) for ticket in self._reserved.values())

    def constraint_queues(self) -> Iterator[ConstraintQueue]:
        """Every constraint queue that is not empty."""
        return iter(self._queues.values())

    def constraint_queue(self, constraints: Constraints) -> ConstraintQueue | None:
        """The queue of these constraints without bounds, None if it is empty."""
        return self._queues.get((constraints, ()))

    def with_constraints(self, constraints: Constraints) -> list[ConstraintQueue]:
        """The queues of these constraints that are not empty, one for each set of bounds."""
        unbounded = self.constraint_queue(constraints)
        found = [] if unbounded is None else [unbounded]
        return [*found, *self._bounded.get(constraints, {}).values()]

    def under(self, bound: Bound) -> list[ConstraintQueue]:
        """The queues under a bound that are not empty. O(queues under any bound)."""
        queues = (queue for alike in self._bounded.values() for queue in alike.values())
        return [queue for queue in queues if bound in queue.bounds]

    def change_constraints(self, ticket: Ticket, constraints: Constraints) -> None:
        """Move a queued ticket to other constraints; it keeps its arrival position."""
        self._take_out(ticket)
        ticket.constraints = constraints
        self._put_back(ticket)

    def _put_back(self, ticket: Ticket) -> None:
        """Where it belongs by its arrival, unless it is held back."""
        if ticket.held_by is None:
            self._queue(ticket).enter(ticket, is_back=True)

    def resolve(self, ticket: Ticket, resolved: ResolvedRequest) -> None:
        """Its names are known by now: give a queued ticket its constraints and bounds."""
        self._take_out(ticket)
        for bound in ticket.resolved.bounds:
            bound.queued -= 1
        for bound in resolved.bounds:
            bound.queued += 1
        ticket.resolved, ticket.constraints = resolved, resolved.constraints
        self._put_back(ticket)

    def reorder(self) -> None:
        """The orders of bounds have changed: sort the queues under them again."""
        for alike in list(self._bounded.values()):
            for queue in list(alike.values()):
                if queue.order != self.order_under(queue.bounds):
                    self._sort_again(queue)

    def _sort_again(self, queue: ConstraintQueue) -> None:
        tickets = sorted(
            ticket
            for tenants in queue.queues.values()
            for _, flows in tenants.tenants()
            for flow in flows
            for ticket in flow.values()
        )
        for ticket in tickets:
            self._take_out(ticket)
        for ticket in tickets:
            self._queue(ticket).enter(ticket)

    # Multi-slot tickets with a reservation

    def with_reservations(self) -> Iterator[Ticket]:
        """The tickets with a reservation, in order of reservation."""
        return iter(self._reserved.values())

    def lightest_reserved_slots(self) -> int:
        """The least number of slots that one of them needs; at least 1."""
        return min(self._reserved_weights, default=1)

    def reserve(
        self,
        ticket: Ticket,
        endpoint_slots: EndpointSlots,
        address: Address,
        demand: TokenDemand | None = None,
    ) -> Reservation:
        """Reserve free slots for a ticket, and remove it from its constraint queue."""
        self._take_out(ticket)
        self._reserved[ticket.id] = ticket
        self._reserved_weights[ticket.request.weight_slots] += 1
        ticket.reserved_at = address
        reservation = Reservation(
            *(endpoint_slots, ticket.id, ticket.criticality, ticket.request.weight_slots),
            demand,
        )
        ticket.reservation = endpoint_slots.reservation = reservation
        for bound in ticket.resolved.bounds:
            bound.reserve()
        return reservation

    def holds(self, reservation: Reservation) -> bool:
        """Whether a queued ticket has this reservation."""
        ticket = self._reserved.get(reservation.ticket_id)
        return ticket is not None and ticket.reservation is reservation

    def holder(self, reservation: Reservation) -> Ticket:
        """The ticket that a reservation is for."""
        return self._reserved[reservation.ticket_id]

    def cancel_reservation(self, ticket: Ticket) -> None:
        """Cancel its reservation and return it to its constraint queue, in order of arrival."""
        self._take_out(ticket)
        self._queue(ticket).enter(ticket, is_back=True)

    def _queue(self, ticket: Ticket) -> ConstraintQueue:
        constraints, bounds = key = (ticket.constraints, ticket.resolved.bounds)
        constraint_queue = self._queues.get(key)
        if constraint_queue is None:
            order = self.order_under(bounds)
            constraint_queue = self._queues[key] = ConstraintQueue(constraints, order, bounds)
            for index_key in constraints.index_keys():
                self._indexed.setdefault(index_key, {})[key] = constraint_queue
            if bounds:
                self._bounded.setdefault(constraints, {})[bounds] = constraint_queue
        return constraint_queue

    def order_under(self, bounds: BoundsOfRequest) -> QueueOrder:
        """The order within each flow of tickets that are under these."""
        is_last_come = any(bound.limits.is_last_come for bound in bounds)
        return LAST_COME_ORDER if is_last_come else self.order

    def _take_out(self, ticket: Ticket) -> None:
        if ticket.queued_in is not None:
            key = (ticket.constraints, ticket.resolved.bounds)
            constraint_queue = self._queues[key]
            constraint_queue.leave(ticket)
            if not constraint_queue:
                self._drop(key)
        elif ticket.reservation is not None:
            del self._reserved[ticket.id]
            weight_slots = ticket.request.weight_slots
            self._reserved_weights[weight_slots] -= 1
            if not self._reserved_weights[weight_slots]:
                del self._reserved_weights[weight_slots]
            ticket.reservation.pool.reservation = None
            ticket.reservation = None
            for bound in ticket.resolved.bounds:
                bound.unreserve()

    def _drop(self, key: QueueKey) -> None:
        del self._queues[key]
        constraints, bounds = key
        for index_key in constraints.index_keys():
            queues = self._indexed[index_key]
            del queues[key]
            if not queues:
                del self._indexed[index_key]
        if bounds:
            del self._bounded[constraints][bounds]
            if not self._bounded[constraints]:
                del self._bounded[constraints]
