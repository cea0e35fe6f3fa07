"""The record of all leases and of the slots of each endpoint.

Rules, which the property tests check:
  1. `free` is never negative and no call here leases more than `free` slots, except
     `move`, which records where Envoy has already sent a request.
  2. Every lease is released exactly once; a second release raises.
  3. A draining lease closes when a scrape that began after its client left proves its slot
     free (`draining_evidence`), when its server was replaced by another, or when its cap passed.
     One that outlives its client has no cap while scrapes show its server at work.
Synchronous and pure; `now` is an argument everywhere.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from extproc.core.address import Address
from extproc.core.observation import Observation
from extproc.core.slots.draining_evidence import RELEASE_S
from extproc.core.slots.endpoint_slots import EndpointSlots, can_fit
from extproc.core.slots.lease import Lease, LeaseEnd, LeaseState
from extproc.core.slots.model_pools import observe_model_pools
from extproc.core.slots.token_demand import TokenDemand

HANDOVER_S = 0.25
"""The longest time from our response until a gateway's request reaches the server. Scrapes that
began before prove nothing about a request whose stream ended with the response."""
OUTLASTING_S = 3600.0
"""The longest time for which a lease that outlives its client drains, however often scrapes show
its server at work."""
MIN_STEP_S = 1.0
"""The least time after which such a lease is looked at again."""
GRACE_S = 2.0
"""A draining lease that exceeds its cap by this time was forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainingCaps:
    """How long the slot of a client that left counts as busy at most, in seconds.

    `blind_s` is for servers that do not report their slots, so that nothing else can end it.
    """

    reported_s: float = 10.0
    blind_s: float = 1.0


class Ledger:
    """Leases by endpoint. O(log n) a call, and O(leases of one endpoint) for a scrape."""

    def __init__(self, caps: DrainingCaps | None = None) -> None:
        self._caps = caps or DrainingCaps()
        self._by_endpoint: dict[Address, EndpointSlots] = {}
        self._leases: dict[int, Lease] = {}
        self._ids = count(1)
        self._caps_due: list[tuple[float, int, Lease]] = []
        self._rechecks_due: OrderedDict[Address, float] = OrderedDict()
        self.shares_contexts = False
        """Whether the slots of any pool share a context, so that requests need room in it."""
        self.unproved: list[Address] = []
        """Endpoints for which the last `expire` found no proof: another scrape may have it."""

    def add_endpoint(self, address: Address, now: float) -> None:
        """Add an endpoint; one that is known keeps its leases."""
        self._by_endpoint.setdefault(address, EndpointSlots(now))

    def remove_endpoint(self, address: Address) -> None:
        """Remove an endpoint without leases; raises `ValueError` if it has some."""
        if self._by_endpoint[address].leases:
            raise ValueError(f"{address} still has leases")
        del self._by_endpoint[address]

    def endpoint_slots(self, address: Address) -> EndpointSlots:
        """The slots of one endpoint; raises `KeyError` if it is unknown."""
        return self._by_endpoint[address]

    def leases(self) -> Iterable[Lease]:
        """Every lease that is open or draining, oldest first."""
        return self._leases.values()

    def open(
        self,
        address: Address,
        weight_slots: int,
        now: float,
        pool: str | None = None,
        model: str | None = None,
        demand: TokenDemand | None = None,
    ) -> Lease:
        """Lease slots, in a model pool if one is named; `model` is the requested one, `demand` what
        it takes of a shared context. Raises `ValueError` if they are not free: a bug of the
        caller."""
        endpoint_slots = self._by_endpoint[address]
        target = endpoint_slots if pool is None else endpoint_slots.pool(pool)
        if not can_fit(weight_slots, target.free_slots, target.slots):
            raise ValueError(f"{address} has no {weight_slots} free slots")
        lease = Lease(
            next(self._ids),
            address,
            min(weight_slots, target.slots),
            now,
            asked_slots=weight_slots,
            model=model,
        )
        lease.demand = demand
        if pool is not None and target is not endpoint_slots:
            lease.model_pool = pool
        try:
            self._leases[lease.id] = lease
            endpoint_slots.add(lease)
        except Exception:
            lease.state = LeaseState.CLOSED  # no index refers to it
            raise
        return lease

    def adopt(
        self,
        address: Address,
        weight_slots: int,
        asked_slots: int,
        opened_at: float,
        model: str | None,
    ) -> Lease:
        """A lease that another process opened at `opened_at`; like `move`, this records what has
        happened, whether the slots are free or not. Raises `KeyError` for an unknown endpoint."""
        endpoint_slots = self._by_endpoint[address]
        lease = Lease(
            next(self._ids), address, weight_slots, opened_at, asked_slots=asked_slots, model=model
        )
        self._leases[lease.id] = lease
        endpoint_slots.add(lease, is_running=True)
        return lease

    def move(self, lease: Lease, address: Address, now: float, pool: str | None = None) -> None:
        """Move the lease to the endpoint that served the request instead of the picked one."""
        self._by_endpoint[lease.address].remove(lease, now)
        endpoint_slots = self._by_endpoint[address]
        lease.address = address
        lease.progress = None  # what was seen is another's
        lease.model_pool = pool if pool in endpoint_slots.model_pools else ""
        lease.weight_slots = max(1, min(lease.asked_slots, endpoint_slots.pool(pool).slots))
        endpoint_slots.add(lease, is_running=True)

    def release(self, lease: Lease, end: LeaseEnd, now: float) -> None:
        """An exchange ended. A served one frees its slots now, an abandoned one drains; so does
        one that was handed over, as if its client left when it must have reached its server."""
        if end is LeaseEnd.SERVED:
            self._close(lease, now)
            return
        left_at = now + HANDOVER_S if end is LeaseEnd.HANDED_OVER else now
        lease.leave(left_at)
        endpoint_slots = self._by_endpoint[lease.address]
        cap_s = self._caps.reported_s if endpoint_slots.reports_busy_slots else self._caps.blind_s
        heapq.heappush(self._caps_due, (left_at + cap_s, lease.id, lease))

    def observe(self, observation: Observation, now: float) -> None:
        """Apply a scrape to one endpoint; raises `KeyError` if it is unknown."""
        endpoint_slots = self._by_endpoint[observation.address]
        has_model_pools = endpoint_slots.is_newer(observation) and observation.has_model_pools
        freed = endpoint_slots.observe(observation)
        if has_model_pools:
            freed = observe_model_pools(endpoint_slots, observation, freed)
        for lease in freed:
            self._close(lease, now)
        self._schedule_recheck(observation.address)
        if endpoint_slots.has_draining:  # also one without a proof is followed by another
            self._rechecks_due.setdefault(observation.address, now + RELEASE_S)

    def expire(self, now: float) -> list[Address]:
        """Close the draining leases that are proved over now, and those whose cap passed;
        returns the endpoints that changed."""
        changed = self._recheck(now)
        while self._caps_due and self._caps_due[0][0] <= now:
            lease = heapq.heappop(self._caps_due)[2]
            if lease.state is LeaseState.DRAINING:
                if self._is_still_at_work(lease, now):
                    due_at = now + max(MIN_STEP_S, self._caps.reported_s)
                    heapq.heappush(self._caps_due, (due_at, lease.id, lease))
                    continue
                self._by_endpoint[lease.address].write_off(lease)
                self._close(lease, now)
                changed.append(lease.address)
        return changed

    def _is_still_at_work(self, lease: Lease, now: float) -> bool:
        """Whether its cap does not count, as its server goes on without its client: it was scraped
        since the last look, and that did not prove the slot free."""
        left_at, endpoint_slots = lease.left_at, self._by_endpoint[lease.address]
        if not lease.outlives_client or left_at is None or now >= left_at + OUTLASTING_S:
            return False
        since = now - max(MIN_STEP_S, self._caps.reported_s)
        return endpoint_slots.reports_busy_slots and endpoint_slots.counted_at >= since

    def next_expiry(self) -> float | None:
        """When `expire` must be called next, or None."""
        while self._caps_due and self._caps_due[0][2].state is LeaseState.CLOSED:
            heapq.heappop(self._caps_due)
        cap_at = self._caps_due[0][0] if self._caps_due else None
        recheck_at = next(iter(self._rechecks_due.values()), None)
        return min((when for when in (cap_at, recheck_at) if when is not None), default=None)

    def _schedule_recheck(self, address: Address) -> None:
        """Scrapes are evaluated in the order in which they were applied, or soon after."""
        due_at = self._by_endpoint[address].next_recheck
        if due_at is not None and address not in self._rechecks_due:
            self._rechecks_due[address] = due_at

    def _recheck(self, now: float) -> list[Address]:
        changed = []
        self.unproved = []
        while self._rechecks_due and next(iter(self._rechecks_due.values())) <= now:
            address, _ = self._rechecks_due.popitem(last=False)
            endpoint_slots = self._by_endpoint.get(address)
            if endpoint_slots is None:
                continue
            over = endpoint_slots.recheck(now)
            for lease in over:
                self._close(lease, now)
            if over:
                changed.append(address)
            if endpoint_slots.has_draining:
                self.unproved.append(address)
            self._schedule_recheck(address)
        return changed

    def _close(self, lease: Lease, now: float) -> None:
        lease.close(now)
        self._leases.pop(lease.id, None)
        for bound in lease.bounds:
            bound.request_ended()
        for group in lease.groups:
            group.request_ended()
        self._by_endpoint[lease.address].remove(lease, now)

    # Derived state

    def faults(self, now: float) -> list[str]:
        """Differences between the endpoints' slots and the leases. O(endpoints + leases)."""
        found: list[str] = []
        counted = 0
        for address, endpoint_slots in self._by_endpoint.items():
            counted += len(endpoint_slots.leases)
            found += [
                f"{lease} is listed at {address}"
                for lease in endpoint_slots.leases.values()
                if self._leases.get(lease.id) is not lease or lease.address != address
            ]
            found += [f"{address}: {fault}" for fault in endpoint_slots.faults()]
        if counted != len(self._leases):
            found.append(f"{len(self._leases)} leases are open, and {counted} at endpoints")
        cap_s = max(self._caps.reported_s, self._caps.blind_s)
        for lease in self._leases.values():
            if lease.state is LeaseState.CLOSED:
                found.append(f"{lease} was closed and is still listed")
            elif lease.left_at is not None:
                longest_s = cap_s + GRACE_S + OUTLASTING_S * lease.outlives_client
                if lease.left_at < now - longest_s:
                    found.append(f"{lease} drains for longer than its cap")
        return found

    def rebuild(self) -> None:
        """Derive the slots of all endpoints again from the leases. O(endpoints + leases).

        A draining lease gets its whole cap again, from the time when its client left.
        """
        self._leases = {
            id_: lease
            for id_, lease in self._leases.items()
            if lease.state is not LeaseState.CLOSED and lease.address in self._by_endpoint
        }
        for endpoint_slots in self._by_endpoint.values():
            endpoint_slots.clear()
        for lease in self._leases.values():
            self._by_endpoint[lease.address].add(lease, is_running=True)
        self._rechecks_due.clear()
        self._caps_due = [
            (lease.left_at + self._caps.reported_s, lease.id, lease)
            for lease in self._leases.values()
            if lease.left_at is not None
        ]
        heapq.heapify(self._caps_due)
