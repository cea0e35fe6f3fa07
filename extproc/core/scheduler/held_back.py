"""Finds slots for queued requests that something else than slots held back until now."""

from collections.abc import Callable

from extproc.core.address import Address
from extproc.core.bounds import Bound, is_held_back
from extproc.core.constraints import UNRESOLVED, Constraints
from extproc.core.queue.ticket import Ticket
from extproc.core.request_groups import Group
from extproc.core.scheduler.rule_filters import RuleFilters
from extproc.core.state import State


class HeldBack:
    """Bounds that have places again, sessions and flows below their limit, and tickets that rules
    have moved. Each call ends when there are none left; one inside another does nothing, as the
    outer one goes on."""

    def __init__(
        self,
        state: State,
        rule_filters: RuleFilters,
        find_capacity: Callable[[Ticket, float], Address | None],
        resolve_unresolved: Callable[[float], bool],
    ) -> None:
        """`find_capacity` finds slots for a ticket that may use other endpoints than before, and
        returns where it looked. `resolve_unresolved` resolves tickets whose names may be known by
        now."""
        self._state = state
        self._moved = rule_filters.moved
        self._find_capacity = find_capacity
        self._resolve_unresolved = resolve_unresolved
        self._is_opening = self._is_placing = False

    def assign_opened(self, now: float) -> None:
        """Bounds have places again, or sessions and flows are below their limit: assign what is
        free anywhere to their requests, which need not be those of the endpoint that gave the place
        back."""
        if self._is_opening:
            return
        self._is_opening = True
        bounds, groups = self._state.bounds.opened, self._state.groups.opened
        try:
            while groups or bounds:
                if groups:
                    self._let_in(groups.pop(), now)
                    continue
                bound = bounds.pop()
                while not bound.is_full and self._assign_under(bound, now):
                    pass
        finally:
            self._is_opening = False

    def _let_in(self, group: Group, now: float) -> None:
        """Let in what a session or a flow held back, as far as its limit allows. The slot that is
        found may go to another request, or be reserved for one, which could not use those
        elsewhere."""
        for ticket in self._state.queue.let_in(group, now):
            if ticket.constraints == UNRESOLVED:
                self._resolve_unresolved(now)
            tried: set[Address | None] = {None}
            while ticket.is_waiting and (at := self._find_capacity(ticket, now)) not in tried:
                tried.add(at)

    def _assign_under(self, bound: Bound, now: float) -> bool:
        """Find slots for the first by priority of the requests under a bound; returns whether any
        request got some, or one of these a reservation."""
        state = self._state
        waiting = [
            queue.next_by_priority(state.slo_attainment, now)
            for queue in state.queue.under(bound)
            if not is_held_back(queue.bounds)
        ]
        before = (len(state.queue), bound.reserved)
        for _, ticket in sorted(waiting):
            self._find_capacity(ticket, now)
            if (len(state.queue), bound.reserved) != before:
                return True
        return False

    def place_moved(self, now: float) -> None:
        """Find slots for the tickets that rules have just moved; meanwhile others may be moved."""
        if self._is_placing:
            return
        self._is_placing = True
        try:
            for ticket in self._moved:
                before: Constraints | None = None
                while ticket.is_waiting and ticket.constraints != before:
                    before = ticket.constraints
                    self._find_capacity(ticket, now)
        finally:
            self._is_placing = False
            self._moved.clear()
