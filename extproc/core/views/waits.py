"""Why requests are queued, by model: what an operator asks when slots are idle beside a queue."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from extproc.core.address import Address
from extproc.core.bounds import is_held_back
from extproc.core.constraints import UNRESOLVED, Constraints, qualified
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.learning.traffic_counter import ANY_MODEL
from extproc.core.queue.request_queue import QueueKey
from extproc.core.queue.ticket import Ticket
from extproc.core.slots.endpoint_slots import Reservation
from extproc.core.slots.model_pools import slot_pool
from extproc.core.state import State

PoolModel = tuple[str, str]
"""The names of a pool and of a model; without pools, and for no model, they are empty."""


class WaitReason(Enum):
    """Why a request is queued."""

    NO_IDLE_SLOT = "no-idle-slot"
    RESERVED = "reserved"
    TOO_FEW_SLOTS = "too-few-slots"
    TOO_FEW_TOKENS = "too-few-tokens"
    AFFINITY = "affinity"
    MODEL_LOADING = "model-loading"
    WAKING = "waking"
    NO_ENDPOINT = "no-endpoint"
    EXCLUDED_BY_RULE = "excluded-by-rule"
    BOUND_REACHED = "bound-reached"
    LIMIT_REACHED = "limit-reached"
    UNREPORTED = "unreported"


MEANINGS: Final = {
    WaitReason.NO_IDLE_SLOT: "no endpoint that can serve them has an idle slot",
    WaitReason.RESERVED: "the idle slots are reserved for a request that needs more",
    WaitReason.TOO_FEW_SLOTS: "they need more slots at once than an endpoint has idle",
    WaitReason.TOO_FEW_TOKENS: "the context that the slots share has no room for them yet",
    WaitReason.AFFINITY: "they wait briefly for the endpoint with their prompt in its cache or "
    "their model loaded",
    WaitReason.MODEL_LOADING: "their model is being loaded",
    WaitReason.WAKING: "the machine of a server for them wakes",
    WaitReason.NO_ENDPOINT: "no endpoint that can serve them gets requests",
    WaitReason.EXCLUDED_BY_RULE: "rules exclude every endpoint that could serve them",
    WaitReason.BOUND_REACHED: "as many requests as their bounds allow run",
    WaitReason.LIMIT_REACHED: "as many requests of their session or flow run or are next as its "
    "limit allows",
    WaitReason.UNREPORTED: "not every endpoint has reported its models and adapters yet",
}


@dataclass(slots=True, kw_only=True)
class ModelQueue:
    """The queued requests for one model, by reason, and the slots that requests for it may use.

    A router's slots count for each model that it has; a model that is not loaded has one there.
    Requests that name no model, or none that is served, may use those of all endpoints.
    """

    by_reason: Counter[WaitReason] = field(default_factory=Counter)
    idle_slots: int = 0

    @property
    def queued(self) -> int:
        return self.by_reason.total()


class Waits:
    """Why tickets are queued now. Holds what it has found out, so it is for one turn of the event
    loop. O(models of all endpoints); O(endpoints with idle slots) for each set of constraints."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._reasons: dict[Constraints, WaitReason] = {}
        self._idle: dict[Address, Endpoint] = {}
        self._queues: dict[PoolModel, ModelQueue] = {}
        for endpoint in state.fleet:
            if not endpoint.spec.is_far and self._count_idle(endpoint):
                self._idle[endpoint.address] = endpoint

    def reason_of(self, ticket: Ticket) -> WaitReason:
        """Why a queued ticket waits."""
        if ticket.held_by is not None:
            return WaitReason.LIMIT_REACHED
        if ticket.reservation is not None:
            return _lacks(ticket.reservation)
        if self._state.affinity_waits.is_pinned(ticket):
            return WaitReason.AFFINITY
        if is_held_back(ticket.resolved.bounds):
            return WaitReason.BOUND_REACHED
        return self._reason(ticket.constraints)

    def by_model(self) -> dict[str, ModelQueue]:
        """Every model that the fleet serves or that requests wait for, each with the name of its
        pool before it, if it has one. O(constraint queues + pinned tickets + reservations + tickets
        that are held back); call it once."""
        return {qualified(pool, name): one for (pool, name), one in self.by_pool().items()}

    def by_pool(self) -> "dict[PoolModel, ModelQueue]":
        """The same by pool and model."""
        pinned: Counter[QueueKey] = Counter()
        for ticket in self._state.affinity_waits.tickets():
            pinned[ticket.constraints, ticket.resolved.bounds] += 1
            self._count(ticket.constraints, WaitReason.AFFINITY, 1)
        for ticket in self._state.queue.with_reservations():
            assert ticket.reservation is not None
            self._count(ticket.constraints, _lacks(ticket.reservation), 1)
            if self._state.affinity_waits.is_pinned(ticket):
                pinned[ticket.constraints, ticket.resolved.bounds] -= 1
                self._count(ticket.constraints, WaitReason.AFFINITY, -1)
        for ticket in self._state.queue.held_back:
            self._count(ticket.constraints, WaitReason.LIMIT_REACHED, 1)
        for queue in self._state.queue.constraint_queues():
            others = len(queue) - pinned[queue.constraints, queue.bounds]
            if others:
                is_bound = is_held_back(queue.bounds)
                reason = WaitReason.BOUND_REACHED if is_bound else self._reason(queue.constraints)
                self._count(queue.constraints, reason, others)
        for (pool, name), one in self._queues.items():
            one.by_reason = +one.by_reason
            if name == ANY_MODEL:
                one.idle_slots = self._idle_slots(pool)
        return self._queues

    def _idle_slots(self, pool: str) -> int:
        """Those of all endpoints of a pool, for requests that any of them can serve."""
        endpoint_slots = self._state.ledger.endpoint_slots
        return sum(
            endpoint_slots(one.address).free_slots
            for one in self._idle.values()
            if one.spec.pool == pool and one.is_pickable
        )

    def _count(self, constraints: Constraints, reason: WaitReason, count: int) -> None:
        self._queue_of(constraints.pool, constraints.model).by_reason[reason] += count

    def _queue_of(self, pool: str, model: str | None) -> ModelQueue:
        catalog = self._state.resolver.names.catalog
        name = ANY_MODEL if model is None else catalog.canonical_name(model)
        return self._queues.setdefault((pool, name), ModelQueue())

    def _count_idle(self, endpoint: Endpoint) -> bool:
        """Add the idle slots of an endpoint to its models; returns whether it has any."""
        endpoint_slots = self._state.ledger.endpoint_slots(endpoint.address)
        has_idle = endpoint.is_pickable and endpoint_slots.free_slots > 0
        for reading in endpoint.models:
            queue = self._queue_of(endpoint.spec.pool, reading.name)
            if endpoint.is_pickable:
                pool, name, is_loaded = slot_pool(endpoint, endpoint_slots, reading.name)
                if is_loaded or name is None or self._state.model_loads.may_start(name):
                    queue.idle_slots += pool.free_slots
                has_idle = has_idle or pool.free_slots > 0
        return has_idle

    def _reason(self, constraints: Constraints) -> WaitReason:
        reason = self._reasons.get(constraints)
        if reason is None:
            reason = self._reasons[constraints] = self._find_reason(constraints)
        return reason

    def _find_reason(self, constraints: Constraints) -> WaitReason:
        """Why the tickets of a constraint queue wait."""
        state = self._state
        if constraints == UNRESOLVED:
            is_any_pickable = any(endpoint.is_pickable for endpoint in state.fleet)
            return WaitReason.UNREPORTED if is_any_pickable else WaitReason.NO_ENDPOINT
        reason = WaitReason.NO_IDLE_SLOT
        named = self._idle if constraints.allowed is None else constraints.allowed
        for endpoint in filter(None, map(self._idle.get, named)):
            if not is_eligible(constraints, endpoint):
                continue
            endpoint_slots = state.ledger.endpoint_slots(endpoint.address)
            pool, name, is_loaded = slot_pool(endpoint, endpoint_slots, constraints.model)
            if pool.reservation is not None and pool.free_slots:
                return WaitReason.RESERVED
            if name is not None and not is_loaded and not state.model_loads.may_start(name):
                reason = WaitReason.MODEL_LOADING
        if reason is WaitReason.NO_IDLE_SLOT and not self._is_served(constraints):
            if constraints.by_rules is not None:
                others = constraints._replace(by_rules=None)
                if self._is_served(others):
                    return WaitReason.EXCLUDED_BY_RULE
            load = state.load_of(constraints.model, constraints.pool)
            if load is not None and load.is_wake:
                return WaitReason.WAKING
            is_loading = load is not None and load.ready_at is not None
            return WaitReason.MODEL_LOADING if is_loading else WaitReason.NO_ENDPOINT
        return reason

    def _is_served(self, constraints: Constraints) -> bool:
        """Whether an endpoint that gets requests is eligible."""
        named: Iterable[Endpoint] = self._state.fleet
        if constraints.allowed is not None:
            named = filter(None, map(self._state.fleet.get, constraints.allowed))
        return any(one.is_pickable and is_eligible(constraints, one) for one in named)


def _lacks(reservation: Reservation) -> WaitReason:
    """What a request with a reservation has too little of."""
    if reservation.lacks_tokens:
        return WaitReason.TOO_FEW_TOKENS
    return WaitReason.TOO_FEW_SLOTS


def explain_idle_slots(queues: Mapping[str, ModelQueue], idle_slots: int) -> str:
    """Why requests are queued although `idle_slots` are idle, as a sentence; empty if none is
    queued or idle."""
    waits = Counter[WaitReason]()
    models: dict[WaitReason, list[str]] = {}
    for model, queue in sorted(queues.items()):
        for reason, count in queue.by_reason.items():
            waits[reason] += count
            models.setdefault(reason, []).append(model)
    if not waits or not idle_slots:
        return ""
    parts = [
        f"{count} queued{_for(models[reason])}: {MEANINGS[reason]}"
        for reason, count in waits.most_common()
    ]
    return f"{_number(idle_slots, 'idle slot')}; {'; '.join(parts)}"


def _for(models: list[str]) -> str:
    named = [model for model in models if model != ANY_MODEL and not model.endswith("/")]
    if not named or len(named) < len(models):
        return ""
    return f" for {named[0]}" if len(named) == 1 else f" for {len(named)} models"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
