"""Sends requests that may leave to endpoints of a higher tier, if the first would be too slow.

The endpoints of higher tiers are no part of the fleet for anything else: no constraints but those
that are made here name another tier than the first, so no ranking, fallback or request without a
slot ever meets them. A request stays in the queue of the first tier as every other one; it spills
when it is expected to wait there for too long in all, and an endpoint of the next tier has a slot.
"""

from itertools import islice
from math import inf
from typing import Final, NamedTuple

from extproc.core.bounds import is_held_back
from extproc.core.constraints import UNRESOLVED, Constraints
from extproc.core.decision import Picked
from extproc.core.fleet.eligibility import is_eligible
from extproc.core.fleet.endpoint import Endpoint, Intent
from extproc.core.fleet.health import Health
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request, ResolvedRequest
from extproc.core.request_groups import full_group
from extproc.core.scheduler.slot_allocator import SlotAllocator
from extproc.core.slots.model_pools import available_pool
from extproc.core.state import State
from extproc.core.views.forecast import QueuePosition

CHECK_S: Final = 0.25
"""How often queued requests are examined again. One whose wait would pass its bound before the
next time spills now."""
MAX_EXAMINED: Final = 200
"""Queued requests that are examined each time, those that arrived first: the others were when they
arrived."""
ANY_MODEL: Final = "*"
"""In the map of an endpoint's models: all names that are not in it."""


class _Target(NamedTuple):
    """An endpoint with room for a request there, and the name of the model for its server."""

    endpoint: Endpoint
    constraints: Constraints
    model: str | None
    free_slots: int


class Spilling:
    """Part of the dispatcher: every call is within one of its calls."""

    def __init__(self, state: State, allocator: SlotAllocator) -> None:
        self._state = state
        self._allocator = allocator
        self._tickets: dict[int, Ticket] = {}
        """Queued requests that may spill, and some that wait no more."""
        self._checked_at = -inf

    def take(self, resolved: ResolvedRequest, request: Request, now: float) -> Picked | None:
        """Pick an endpoint for an arrival that would be rejected because all slots are in use; None
        if it may not spill, or none has room."""
        if not self._permits(resolved, request) or is_held_back(resolved.bounds):
            return None
        if full_group(resolved.groups) is not None:
            return None
        if self._allocator.is_held:
            return None
        if request.is_partial and not self._state.uploads.may_begin(request, now):
            return None
        target = self._target(resolved, request, now)
        return None if target is None else self._pick(target, resolved, request, now, now)

    def queued(self, ticket: Ticket, now: float) -> None:
        """A request was just queued: it is settled at once if its wait would be too long."""
        if ticket.is_waiting and self._permits(ticket.resolved, ticket.request):
            self._tickets[ticket.id] = ticket
            self._spill_late([ticket], now)
            self._state.outbox.wake_at(self.next_check())

    def settle(self, ticket: Ticket, now: float) -> bool:
        """Let a queued request spill that would lose its place, if it may; returns whether it
        did."""
        if not self._permits(ticket.resolved, ticket.request) or not self._can_go(ticket, now):
            return False
        self._spill(ticket, now)
        return True

    def advance(self, now: float) -> None:
        """Examine the queued requests again, if that is due."""
        due_at = self.next_check()
        if due_at is None or now < due_at:
            return
        self._checked_at = now
        self._tickets = {id_: one for id_, one in self._tickets.items() if one.is_waiting}
        if self._has_room():
            permitted = (
                one for one in self._tickets.values() if self._permits(one.resolved, one.request)
            )
            self._spill_late(list(islice(permitted, MAX_EXAMINED)), now)

    def next_check(self) -> float | None:
        """When `advance` must be called next, or None."""
        return self._checked_at + CHECK_S if self._tickets else None

    # Who goes

    def _permits(self, resolved: ResolvedRequest, request: Request) -> bool:
        return (
            bool(self._state.fleet.far)
            and self._state.options.spill.permits(resolved.objective, request.tenant)
            and request.adapters is None
            and resolved.constraints != UNRESOLVED
        )

    def _spill_late(self, tickets: list[Ticket], now: float) -> None:
        """Let those of the tickets spill that would wait for too long, in their order. Each that
        goes shortens the waits of those behind it."""
        rest = [ticket for ticket in tickets if self._can_go(ticket, now)]
        while rest and self._has_room():
            positions = self._allocator.forecast.positions_of(rest, now)
            late = (
                index
                for index, (ticket, position) in enumerate(zip(rest, positions, strict=True))
                if self._is_late(ticket, position, now)
            )
            index = next(late, None)
            if index is None:
                return
            ticket, rest = rest[index], rest[index + 1 :]
            if self._can_go(ticket, now):
                self._spill(ticket, now)

    def _can_go(self, ticket: Ticket, now: float) -> bool:
        if not ticket.is_waiting or self._allocator.is_held:
            return False
        if ticket.reservation is None and is_held_back(ticket.resolved.bounds):
            return False
        if ticket.held_by is not None:
            return False  # it waits for its own session or flow
        request = ticket.request
        if request.is_partial and not self._state.uploads.may_begin(request, now):
            return False
        return self._target(ticket.resolved, request, now) is not None

    def _is_late(self, ticket: Ticket, position: QueuePosition, now: float) -> bool:
        """Whether its wait in all is expected to pass its bound, or its own deadline."""
        longest_s = self._state.options.spill.longest_wait_s(ticket.objective)
        longest_s = min(longest_s, ticket.deadline - ticket.waits_since)
        waited_s = now - ticket.waits_since
        if waited_s + CHECK_S >= longest_s:
            return True
        if position.expected_s is None:
            return not self._may_be_served(ticket.constraints)
        return waited_s + position.expected_s > longest_s

    def _may_be_served(self, constraints: Constraints) -> bool:
        """Whether an endpoint of the first tier serves such requests, or may soon. O(endpoints)."""
        return any(
            is_eligible(constraints, endpoint)
            and not endpoint.is_removed
            and endpoint.intent is Intent.ACTIVE
            and endpoint.health is not Health.DOWN
            for endpoint in self._state.fleet
        )

    # Where it goes

    def _has_room(self) -> bool:
        state = self._state
        if state.spill_left == 0:
            return False
        leases = sum(
            len(state.ledger.endpoint_slots(one.address).leases) for one in state.fleet.far
        )
        return leases < state.options.spill.max_running

    def _target(self, resolved: ResolvedRequest, request: Request, now: float) -> _Target | None:
        """The endpoint of the lowest tier that has room for the request, of several the one with
        the most free slots. O(endpoints of higher tiers)."""
        if not self._has_room():
            return None
        found = (self._target_at(one, resolved, request, now) for one in self._state.fleet.far)
        targets = [target for target in found if target is not None]
        return min(targets, key=lambda one: (one.endpoint.spec.tier, -one.free_slots), default=None)

    def _target_at(
        self, endpoint: Endpoint, resolved: ResolvedRequest, request: Request, now: float
    ) -> _Target | None:
        if not endpoint.is_pickable:
            return None
        state, model = self._state, resolved.model
        constraints = resolved.constraints._replace(tier=endpoint.spec.tier)
        if endpoint.spec.far_models:
            model = _far_model(dict(endpoint.spec.far_models), resolved, request)
            if model is None or (request.is_verbatim and model != request.model):
                return None
            known = model if model in endpoint.models_by_name else None
            constraints = constraints._replace(model=known, model_name_on_wire=None)
        if not is_eligible(constraints, endpoint):
            return None
        rules = state.rules
        if (
            rules is not None
            and rules.has_filters
            and rules.allowed(request, (endpoint,)) is not None
        ):
            return None  # asked again, as before any slot that a queued request gets
        endpoint_slots = state.ledger.endpoint_slots(endpoint.address)
        pool = available_pool(endpoint, endpoint_slots, constraints.model, state.model_loads)
        shares = state.ledger.shares_contexts
        demand = state.demands.of(resolved, request, now) if shares else None
        if pool is None or not pool.open_slots or not pool.fits(request.weight_slots, demand):
            return None
        return _Target(endpoint, constraints, model, pool.free_slots)

    def _spill(self, ticket: Ticket, now: float) -> None:
        resolved, request = ticket.resolved, ticket.request
        target = self._target(resolved, request, now)
        assert target is not None, "it can go"
        picked = self._pick(target, resolved, request, ticket.entered_at, now, ticket.waits_since)
        self._state.outbox.settle(ticket, picked)
        self._allocator.leave(ticket)
        self._allocator.after_leaving(ticket, now)

    def _pick(
        self,
        target: _Target,
        resolved: ResolvedRequest,
        request: Request,
        arrived_at: float,
        now: float,
        waits_since: float | None = None,
    ) -> Picked:
        """Open the lease. No fallbacks: another one may know the model by another name."""
        self._state.spilled += 1
        if self._state.spill_left is not None:
            self._state.spill_left -= 1
        there = resolved._replace(constraints=target.constraints)
        picked = self._allocator.pick(
            *(target.endpoint.address, request, there, arrived_at, now), waits_since=waits_since
        )
        return picked._replace(
            fallbacks=(), model=target.model, adapter_id=None, is_restricted=True
        )


def _far_model(names: dict[str, str], resolved: ResolvedRequest, request: Request) -> str | None:
    """What an endpoint calls the model of a request; None if it does not serve it, or the request
    names none."""
    if request.model is None:
        return None
    return names.get(request.model) or names.get(resolved.model or "") or names.get(ANY_MODEL)
