"""The slots of one endpoint: leased, foreign and free.

    leased  = weights of the open and draining leases
    foreign = max(0, busy - weights of all leases open at any moment of [began_at, answered_at],
                  busy slots whose tasks an earlier scrape showed than any lease can own)
    free    = max(0, slots - leased - foreign)

Where the slots share one context, a request also needs room there: `tokens` (see `token_pool`).

A new lease is subtracted whether or not the server had started its request, so it is never counted
twice. A lease that closed while the server was answering is subtracted too, so a freed slot never
looks busy until the next scrape. `draining_evidence` decides when a draining lease ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from extproc.core.objective import Criticality
from extproc.core.observation import Observation
from extproc.core.slots.draining_evidence import DrainingEvidence
from extproc.core.slots.lease import Lease
from extproc.core.slots.token_demand import UNKNOWN, TokenDemand
from extproc.core.slots.token_pool import TokenPool

CLOSED_MEMORY_S = 60.0
"""Closings older than this are forgotten even without a scrape: no scrape takes that long."""


def can_fit(weight_slots: int, free_slots: int, slots: int) -> bool:
    """Whether a request can be leased; an endpoint with fewer slots than its weight gives all."""
    return 0 < slots and (free_slots >= weight_slots or free_slots >= slots)


class EndpointSlots:
    """The slots of one endpoint. Synchronous; O(leases of this endpoint) at worst."""

    def __init__(self, opened_at: float) -> None:
        self.slots = 0
        self.leased_slots = 0
        self.foreign_slots = 0
        self.last_opened_at: float | None = None
        """When its last lease was opened; None before the first one."""
        self.reports_busy_slots = False
        """Whether the server shows which of its slots are busy."""
        self.leases: dict[int, Lease] = {}
        self.model_pools: dict[str, EndpointSlots] = {}
        """By model, if each has its own slots: see `extproc.core.slots.model_pools`."""
        self.reservation: Reservation | None = None
        """For a request that needs more slots than are free."""
        self.tokens: TokenPool | None = None
        """Those of the context that the slots share; None if each has its own."""
        self.served_from_queue = 0
        self._closed: deque[_Closed] = deque()
        self.known_at = opened_at  # an older scrape may have seen leases from before a restart
        """When the last applied scrape began."""
        self.counted_at = opened_at
        """When the last one began that showed which slots are busy."""
        self.is_full = False
        """Whether its server showed no room in its cache: no slot counts as free then."""
        self._instance: str | None = None
        self._evidence = DrainingEvidence()
        self._unexplained = 0
        """`foreign_slots` without its lower bounds."""

    @property
    def surplus_slots(self) -> int:
        """Free slots, none while it is full; negative by the number of slots that are in use beyond
        the total."""
        surplus = self.slots - self.leased_slots - self.foreign_slots
        return min(0, surplus) if self.is_full else surplus

    @property
    def free_slots(self) -> int:
        return max(0, self.surplus_slots)

    @property
    def usable_slots(self) -> int:
        """How many slots requests like those that wait can have at once: only those that are in
        use, while the context that all share has no room for more."""
        is_short = self.reservation is not None and self.reservation.lacks_tokens
        if not is_short and not self.is_full:
            return self.slots
        return max(1, min(self.slots, self.leased_slots + self.foreign_slots))

    @property
    def open_slots(self) -> int:
        """Slots that an arrival may take: none while they are reserved."""
        return 0 if self.reservation is not None else self.free_slots

    def fits(self, weight_slots: int, demand: TokenDemand | None) -> bool:
        """Whether enough slots are free, reserved or not, and room for its tokens if they share a
        context. `demand` is None only where none do."""
        if not can_fit(weight_slots, self.free_slots, self.slots):
            return False
        return self.tokens is None or demand is None or self.tokens.admits(demand)

    def can_ever_fit(self, weight_slots: int, demand: TokenDemand | None = None) -> bool:
        """Whether there will be enough of both once our own leases have ended."""
        if not can_fit(weight_slots, self.slots - self.foreign_slots, self.slots):
            return False
        return self.tokens is None or demand is None or self.tokens.could_admit(demand)

    def share_context(self, capacity_tokens: int | None) -> None:
        """Its slots share a context of that many tokens, or None."""
        if capacity_tokens is None:
            self.tokens = None
        elif self.tokens is not None:
            self.tokens.resize(capacity_tokens, self.slots)
        else:
            self.tokens = TokenPool(capacity_tokens, self.slots)
            for lease in self.leases.values():
                self.tokens.add(lease.id, lease.demand or UNKNOWN)

    def reservations(self) -> Iterator[tuple[EndpointSlots, Reservation]]:
        """Those of the endpoint and of its model pools, each with the pool that has it."""
        for pool in (self, *self.model_pools.values()):
            if pool.reservation is not None:
                yield pool, pool.reservation

    def pool(self, model: str | None) -> EndpointSlots:
        """The slots for requests for that model: the whole endpoint, except for a router."""
        return self.model_pools.get(model, self) if model is not None and self.model_pools else self

    def pools(self) -> Iterable[tuple[str, EndpointSlots]]:
        """The pools that requests take slots from: those of a router's models by their names, or
        the whole endpoint, with an empty name."""
        return self.model_pools.items() if self.model_pools else (("", self),)

    @property
    def draining_slots(self) -> int:
        """The leased slots whose client left, while the server may still work on the request."""
        leases = self.leases.values()
        return sum(lease.weight_slots for lease in leases if lease.left_at is not None)

    @property
    def has_draining(self) -> bool:
        return any(lease.left_at is not None for lease in self.leases.values())

    def add(self, lease: Lease, *, is_running: bool = False) -> None:
        """Add a lease; `is_running` if its request has run here for an unknown time."""
        self.leases[lease.id] = lease
        self.last_opened_at = lease.opened_at
        self.leased_slots += lease.weight_slots
        self._evidence.opened(lease, is_running=is_running)
        if self.tokens is not None:
            self.tokens.add(lease.id, lease.demand or UNKNOWN)
        if lease.model_pool in self.model_pools:
            self.model_pools[lease.model_pool].add(lease, is_running=is_running)

    def remove(self, lease: Lease, now: float) -> None:
        """Remove a lease; raises `KeyError` if it is not here."""
        del self.leases[lease.id]
        self.leased_slots -= lease.weight_slots
        shown_from = self._evidence.closed(lease)
        if self.tokens is not None:
            self.tokens.remove(lease.id)
        is_in_pool = lease.model_pool in self.model_pools
        self._closed.append(
            _Closed(now, lease.opened_at, lease.asked_slots, is_in_pool, shown_from)
        )
        while self._closed[0].at < now - CLOSED_MEMORY_S:
            self._closed.popleft()
        if is_in_pool:
            self.model_pools[lease.model_pool].remove(lease, now)

    def faults(self) -> list[str]:
        """Differences between the sums and the leases, for the log. O(leases)."""
        found = []
        pools = [("", self), *self.model_pools.items()]
        for name, pool in pools:
            leased_slots = sum(lease.weight_slots for lease in pool.leases.values())
            if leased_slots != pool.leased_slots:
                found.append(f"{name or 'all'}: {leased_slots} leased, {pool.leased_slots} counted")
            if pool.tokens is not None and not pool.tokens.is_of(pool.leases.keys()):
                found.append(f"{name or 'all'}: other leases hold tokens than slots")
        in_pools = sum(len(pool.leases) for _, pool in pools[1:])
        named = sum(lease.model_pool in self.model_pools for lease in self.leases.values())
        if in_pools != named:
            found.append(f"{named} leases name a model's slots, and {in_pools} are there")
        return found

    def clear(self) -> None:
        """Forget all leases and reservations, to derive them again; observed values stay."""
        for pool in (self, *self.model_pools.values()):
            pool.leases = {}
            pool.leased_slots = 0
            pool.reservation = None
            if pool.tokens is not None:
                pool.tokens.clear()
            pool._evidence = DrainingEvidence()  # noqa: SLF001 - pools have the same type

    def is_newer(self, observation: Observation) -> bool:
        """Whether the scrape began after the last applied one; older ones must change nothing."""
        return observation.began_at >= self.known_at

    def is_replaced_by(self, observation: Observation) -> bool:
        """Whether a different process answered."""
        instance = observation.instance
        return None not in (instance, self._instance) and instance != self._instance

    def ignore_before(self, now: float) -> None:
        """Ignore scrapes that began before `now`: they may not have seen what just happened."""
        self.known_at = max(self.known_at, now)

    def observe(self, observation: Observation) -> list[Lease]:
        """Apply a scrape if it is newer; returns the draining leases that it proves over."""
        if not self.is_newer(observation):
            return []
        self.known_at = observation.began_at
        while self._closed and self._closed[0].at < observation.began_at:
            self._closed.popleft()
        if observation.slots is not None:
            self.slots = observation.slots
        self.is_full = observation.is_full
        is_replaced = self._is_replaced(observation.instance)
        if is_replaced:
            self._unexplained = self.foreign_slots = 0
            self.reports_busy_slots = False
            self._evidence.restarted()
            if self.tokens is not None:
                self.tokens.restarted()
        if observation.busy_slots is not None:
            self.reports_busy_slots = True
            self.counted_at = observation.began_at
            return self._count_busy(observation, observation.busy_slots)
        # The new process reports no slots, but abandoned tasks ended with the old one.
        return [
            lease for lease in self.leases.values() if is_replaced and lease.left_at is not None
        ]

    def was_constant(self, observation: Observation) -> bool:
        """Whether no lease has ended since the scrape began, so that its tasks are those of the
        leases that are here."""
        return not any(entry.opened_at <= observation.answered_at for entry in self._closed)

    def _is_replaced(self, instance: str | None) -> bool:
        """Whether a different process answered; unknown without an instance name."""
        if instance is None or instance == self._instance:
            return False
        is_known = self._instance is not None
        self._instance = instance
        return is_known

    def _count_busy(self, observation: Observation, busy_slots: int) -> list[Lease]:
        """Set `foreign_slots`; returns the draining leases that are proved over."""
        answered_at = observation.answered_at
        ours = sum(x.weight_slots for x in self.leases.values() if x.opened_at <= answered_at)
        closed = sum(
            entry.slots_of(self.slots) for entry in self._closed if entry.opened_at <= answered_at
        )
        is_quiet = busy_slots <= ours and not closed and not self.foreign_slots
        leases = self.leases.values()
        over = self._evidence.evaluate(observation, busy_slots, leases, is_quiet=is_quiet)
        self._unexplained = busy_slots - ours - closed + sum(x.weight_slots for x in over)
        self.foreign_slots = max(0, self._unexplained, self._ownerless_slots(over))
        return over

    def _ownerless_slots(self, over: list[Lease]) -> int:
        """Busy slots that no lease can own, `over` aside: those are proved to have ended."""
        leases = [lease for lease in self.leases.values() if lease not in over]
        closed = [(entry.shown_from, entry.slots_of(self.slots)) for entry in self._closed]
        return self._evidence.ownerless_slots(leases, closed)

    @property
    def next_recheck(self) -> float | None:
        """When `recheck` must be called, or None."""
        times = [self._evidence.due_at, *(pool.next_recheck for pool in self.model_pools.values())]
        return min((when for when in times if when is not None), default=None)

    def recheck(self, now: float) -> list[Lease]:
        """Evaluate the last scrapes again, after releases in transit have arrived; returns the
        draining leases that are proved over."""
        over = self._evidence.reevaluate(self.leases.values(), now)
        if self.model_pools:
            over = [lease for lease in over if lease.model_pool not in self.model_pools]
        for pool in self.model_pools.values():
            before = pool.foreign_slots
            over += pool.recheck(now)
            self.foreign_slots += pool.foreign_slots - before
        if over and not self.model_pools:
            self._unexplained += sum(lease.weight_slots for lease in over)
            least = max(self._unexplained, self._ownerless_slots(over))
            self.foreign_slots = max(self.foreign_slots, least)
        return over

    def slots_in_no_pool(self, observation: Observation) -> int:
        """Weights of the leases outside of model pools that an applied scrape may have counted."""
        answered_at = observation.answered_at
        leases = (x for x in self.leases.values() if x.model_pool not in self.model_pools)
        running = sum(lease.weight_slots for lease in leases if lease.opened_at <= answered_at)
        closed = (x for x in self._closed if not x.is_in_pool and x.opened_at <= answered_at)
        return running + sum(x.slots_of(self.slots) for x in closed)

    def write_off(self, lease: Lease) -> None:
        """The cap of a draining lease passed: if its slot was last seen busy, it becomes foreign.

        The next scrape corrects that; until then known busy stays busy. No scrape corrects it where
        busy slots are not reported, although a model pool has none while its model is not loaded.
        """
        if not self.reports_busy_slots:
            return
        if lease.left_at is not None and self.known_at > lease.left_at:
            self._unexplained = self.foreign_slots = self.foreign_slots + lease.weight_slots
        if lease.model_pool in self.model_pools:
            self.model_pools[lease.model_pool].write_off(lease)


class Reservation:
    """The free slots of `pool` are reserved for a queued request until they suffice: it needs more
    slots than are free, or more tokens of the context that they share."""

    __slots__ = ("criticality", "demand", "is_exclusive", "pool", "ticket_id", "weight_slots")

    def __init__(
        self,
        pool: EndpointSlots,
        ticket_id: int,
        criticality: Criticality,
        weight_slots: int,
        demand: TokenDemand | None = None,
    ) -> None:
        self.pool = pool
        self.ticket_id = ticket_id
        self.criticality = criticality
        self.weight_slots = weight_slots
        self.demand = demand
        """As expected when it was reserved."""
        self.is_exclusive = False
        """Whether not even a request of higher criticality may use the slots."""

    def can_be_met(self) -> bool:
        """Whether there will be enough of both once our own leases have ended."""
        return self.pool.can_ever_fit(self.weight_slots, self.demand)

    @property
    def lacks_tokens(self) -> bool:
        """Whether enough slots are free, and only the context that they share is too full."""
        pool = self.pool
        return pool.tokens is not None and can_fit(self.weight_slots, pool.free_slots, pool.slots)

    def may_be_bypassed(
        self, criticality: Criticality, weight_slots: int, demand: TokenDemand | None = None
    ) -> bool:
        """Whether a request of that criticality, weight and demand may use the slots."""
        if criticality >= self.criticality or (self.is_exclusive and self.can_be_met()):
            return False
        return self.pool.fits(weight_slots, demand)


class _Closed(NamedTuple):
    at: float
    opened_at: float
    asked_slots: int
    is_in_pool: bool
    shown_from: int
    """The first scrape that may show its task."""

    def slots_of(self, slots: int) -> int:
        """Its weight, bounded by `slots`: a model that it made load reports its slots later."""
        return min(self.asked_slots, slots)
