"""Keeps requests from the endpoints that the operators' rules exclude.

The filters are asked when a request arrives, for queued requests when an endpoint joins or changes,
and before a queued request gets a slot. As their answers may change with the time, they are also
asked again while requests are queued, a bounded number of times a second.
"""

from collections.abc import Iterable
from typing import Final

from extproc.core.address import Address
from extproc.core.constraints import UNRESOLVED
from extproc.core.fleet.endpoint import Endpoint
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason
from extproc.core.state import State

ASK_AGAIN_S: Final = 1.0
MAX_ANSWERS: Final = 2000
"""Answers of filters in one round while requests are queued: about a millisecond."""


class RuleFilters:
    """Asks the filters and moves queued tickets by their answers; the caller assigns slots. Without
    rules nothing is called."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._asked_at = 0.0
        self._asked_id = 0
        """The last ticket of the last round."""
        self._version = 0
        self.moved: list[Ticket] = []

    def still_allow(self, ticket: Ticket, endpoint: Endpoint) -> bool:
        """Whether a ticket may have a slot of the endpoint. If not, it is moved to the endpoints
        that it may use now: `moved` until the caller has found capacity for it."""
        rules = self._state.rules
        if rules is None or not rules.has_filters:
            return True
        if rules.allowed(ticket.request, (endpoint,)) is None:
            return True
        allowed = ticket.resolved.constraints.by_rules
        if ticket not in self.moved:  # else its rules contradict themselves
            self.moved.append(ticket)
            version, allowed = rules.version, self._allowed(ticket)
            if rules.version != version:  # a rule was switched off, and excludes nothing any more
                self._move(ticket, allowed)
                return False
        self._move(ticket, self._among_all(allowed) - {endpoint.address})
        return False

    def ask_about(self, addresses: Iterable[Address]) -> bool:
        """These endpoints joined or changed: ask whether queued requests may use them. Returns
        whether any may use others than before. O(tickets x filters x these endpoints)."""
        rules, fleet = self._state.rules, self._state.fleet
        if rules is None or not rules.has_filters or not self._state.queue:
            return False
        changed = [one for one in map(fleet.get, addresses) if one is not None]
        named = frozenset(one.address for one in changed)
        is_changed = False
        for ticket in list(self._state.queue) if changed else ():
            if ticket.resolved.constraints == UNRESOLVED:
                continue
            allowed = rules.allowed(ticket.request, changed)
            before = ticket.resolved.constraints.by_rules
            if before is None and allowed is None:
                continue
            others = self._among_all(before) - named
            after = others | (named if allowed is None else allowed)
            is_changed |= self._move(ticket, None if len(after) == len(fleet) else after)
        return is_changed

    def ask_again(self, now: float) -> bool:
        """Ask about some queued requests again if that is due, or about all if a rule was switched
        off. Returns whether any may use others than before."""
        due_at, rules = self.next_ask(), self._state.rules
        if due_at is None or now < due_at or rules is None:
            return False
        tickets = list(self._state.queue)
        if rules.version == self._version:
            count = max(1, MAX_ANSWERS // max(1, len(self._state.fleet)))
            later = [ticket for ticket in tickets if ticket.id > self._asked_id] or tickets
            tickets = later[:count]
        self._asked_at = now
        self._asked_id = tickets[-1].id
        return self.ask_all(tickets)

    def ask_all(self, tickets: Iterable[Ticket]) -> bool:
        """Ask about these tickets as if they had arrived now. Returns whether any may use others
        than before."""
        self._version = 0 if self._state.rules is None else self._state.rules.version
        is_changed = False
        for ticket in tickets:
            if ticket.resolved.constraints != UNRESOLVED:
                is_changed |= self._move(ticket, self._allowed(ticket))
        return is_changed

    def next_ask(self) -> float | None:
        """When `ask_again` must be called next, or None."""
        rules = self._state.rules
        if rules is None or not self._state.queue:
            return None
        if not rules.has_filters and rules.version == self._version:
            return None
        return self._asked_at + ASK_AGAIN_S

    def _allowed(self, ticket: Ticket) -> frozenset[Address] | None:
        rules = self._state.rules
        if rules is None or not rules.has_filters:
            return None
        return rules.allowed(ticket.request, self._state.fleet)

    def _among_all(self, allowed: frozenset[Address] | None) -> frozenset[Address]:
        if allowed is not None:
            return allowed
        return frozenset(endpoint.address for endpoint in self._state.fleet)

    def _move(self, ticket: Ticket, allowed: frozenset[Address] | None) -> bool:
        """Give a queued ticket these endpoints; returns whether it had others."""
        state, resolved = self._state, ticket.resolved
        if allowed == resolved.constraints.by_rules:
            return False
        constraints = resolved.constraints._replace(by_rules=allowed, context_tokens=0)
        resolved = resolved._replace(constraints=constraints)
        fitted = state.fit_context(resolved, ticket.request)
        if not isinstance(fitted, Reason):  # what fits none of them is left to the server
            resolved = fitted
        state.affinity_waits.left(ticket)
        ticket.resolved = resolved
        state.queue.change_constraints(ticket, resolved.constraints)
        return True
