"""The one place where requests, slots and the line meet.

    submit --> Picked    a slot was free and nobody waited for it
           --> Queued    no slot is free; the listener hears of the settlement
           --> Rejected  the line is full, or waiting is not allowed

Whatever may free a slot (a release, a look, a new endpoint, an acknowledgement, a cap that
passed) hands it to the head of the line in the same call. While somebody waits, no endpoint
that fits the head is idle, and a new request never overtakes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from extproc.core.endpoint import UNTOLD_SLOTS, Endpoint, EndpointSpec, Intent
from extproc.core.fleet import Fleet
from extproc.core.lease import Lease, LeaseEnd
from extproc.core.ledger import DrainingCaps, Ledger
from extproc.core.observation import Issue, Sight
from extproc.core.outcome import Outcome, Picked, Queued, Reason, Rejected
from extproc.core.pace import Pace
from extproc.core.picker import Picker
from extproc.core.queue import Line, Ticket

if TYPE_CHECKING:
    from extproc.core.address import Address
    from extproc.core.listener import Listener
    from extproc.core.observation import Observation
    from extproc.core.request import Request


CONNECT_FAILED = Issue(
    code="connect-failed",
    message="Envoy could not connect to it",
    remedy="check that the server runs and that Envoy can reach this address",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherOptions:
    """Bounds of the dispatcher; see docs/settings.md for what each means to an operator."""

    max_queued: int = 1024
    fallbacks: int = 2
    failures_to_down: int = 3
    stale_after_s: float = 6.0
    draining_caps: DrainingCaps = field(default_factory=DrainingCaps)


class Dispatcher:
    """Synchronous and pure: every call is atomic, none blocks, `now` is monotonic seconds."""

    def __init__(
        self, listener: Listener, random: Random, options: DispatcherOptions | None = None
    ) -> None:
        self.options = options or DispatcherOptions()
        self.fleet = Fleet()
        self.ledger = Ledger(self.options.draining_caps)
        self.line = Line()
        self._listener = listener
        self._picker = Picker(random)
        self._pace = Pace()
        self._fresh_until: OrderedDict[Address, float] = OrderedDict()
        self._is_closed = False

    # Requests

    def submit(self, request: Request, now: float) -> Outcome:
        """Decide on a new request. A `Queued` one ends in `Listener.settled` or `withdraw`."""
        if self._is_closed:
            return self._rejected(Reason.SHUTTING_DOWN, 0.0)
        if not self.line:
            endpoint = self._best_for(request)
            if endpoint is not None:
                return self._pick(endpoint, request, now, 0.0)
        if len(self.line) >= self.options.max_queued:
            return self._rejected(self._unless_empty(Reason.QUEUE_FULL), 0.0)
        if request.timeout_s <= 0:
            return self._rejected(self._unless_empty(Reason.QUEUE_TIMEOUT), 0.0)
        ticket = self.line.enter(request, now)
        self._listener.wake_at(ticket.deadline)
        return Queued(ticket=ticket)

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """The client of a waiting request left. One that was settled already is no error."""
        if ticket.is_waiting:
            self.line.leave(ticket)
            self._serve(now)

    def cancel(self, ticket: Ticket, now: float) -> None:
        """An operator takes a waiting request out of the line; a settled one is no error."""
        if ticket.is_waiting:
            self.line.leave(ticket)
            self._settle_refused(ticket, Reason.CANCELLED, now)
            self._serve(now)

    def release(self, lease: Lease, end: LeaseEnd, now: float) -> None:
        """A request's exchange is over; its slot goes to the next in line, once it is free."""
        address = lease.address
        self.ledger.release(lease, end, now)
        if end is LeaseEnd.ABANDONED:
            self._listener.unsure_of(address)
            self._wake()
        self._offer(address, now)

    def served_by(self, lease: Lease, address: Address, now: float) -> None:
        """The answer told who served: the lease moves there if it was another endpoint.

        A server outside the fleet (it was removed meanwhile) has no books: the lease stays.
        """
        if address == lease.address or address not in self.fleet:
            return
        picked = lease.address
        self.ledger.move(lease, address, now)
        self._offer(address, now)
        self._offer(picked, now)

    def passing(self) -> list[Address]:
        """Where a request that takes no slot may go, best first; empty when nobody serves."""
        return self._picker.best(1 + self.options.fallbacks)

    # The world

    def observe(self, observation: Observation, now: float) -> None:
        """A look at a server is in.

        One at an endpoint that left the fleet is ignored, and one that began before what is
        known already.
        """
        endpoint = self.fleet.get(observation.address)
        if endpoint is None:
            return
        account = self.ledger.account(endpoint.address)
        if not account.is_news(observation):
            return
        endpoint.observe(observation, self.options.failures_to_down)
        self.ledger.observe(observation, now)
        if observation.sight in (Sight.READY, Sight.ASLEEP):
            if endpoint.spec.slots is not None:
                account.slots = endpoint.spec.slots
            elif account.slots == 0 and observation.slots is None:
                account.slots = UNTOLD_SLOTS
            # Without a count and without an issue it was left in peace: what is known holds.
            is_current = observation.busy_slots is not None or not observation.issues
            if is_current or not account.is_sighted:
                endpoint.refresh(observation.answered_at)
                self._expect_next_look(endpoint, now)
        self._offer(endpoint.address, now)

    def connect_failed(self, address: Address, now: float) -> None:
        """Envoy could not connect there: it is down until a look that begins now succeeds."""
        endpoint = self.fleet.get(address)
        if endpoint is not None:
            endpoint.lose((CONNECT_FAILED,))
            self.ledger.account(address).distrust_looks_before(now)
            self._listener.unsure_of(address)
            self._offer(address, now)

    def set_members(self, source: str, specs: Iterable[EndpointSpec], now: float) -> None:
        """Replace the endpoints that `source` names; the removed ones end their requests."""
        changed = self.fleet.set_members(source, specs)
        for address in changed:
            self.ledger.open_account(address, now)
            self._place(address)
        if changed:
            self._serve(now)
            self._listener.membership_changed()

    def set_intent(self, address: Address, intent: Intent, now: float) -> None:
        """What the operator wants of an endpoint; raises `KeyError` for a stranger."""
        self.fleet.set_intent(address, intent)
        self._listener.membership_changed()
        self._offer(address, now)

    def set_routable(self, address: Address, is_routable: bool, now: float) -> None:
        """Whether every Envoy knows this endpoint, as endpoint discovery sees it."""
        endpoint = self.fleet.get(address)
        if endpoint is not None and endpoint.is_routable is not is_routable:
            endpoint.is_routable = is_routable
            self._offer(address, now)

    def close(self, now: float) -> None:
        """Shut down: everybody who waits is refused, and so is everybody who comes."""
        self._is_closed = True
        for ticket in list(self.line):
            self.line.leave(ticket)
            self._settle_refused(ticket, Reason.SHUTTING_DOWN, now)

    def is_restless(self, address: Address) -> bool:
        """Whether its numbers may change without us: look at it often."""
        endpoint = self.fleet.get(address)
        if endpoint is None:
            return False
        account = self.ledger.account(address)
        is_settled = endpoint.is_serving and endpoint.consecutive_failures == 0
        return not is_settled or account.foreign_slots > 0 or account.has_draining

    def has_leases(self, address: Address) -> bool:
        """Whether requests of ours run there; False for a stranger."""
        return address in self.fleet and bool(self.ledger.account(address).leases)

    def expected_s(self, position: int) -> float | None:
        """Seconds until who stands at `position` (from 1) gets a slot; None while unknown."""
        return self._pace.expected_s(position)

    # Time

    def advance(self, now: float) -> None:
        """Do what is due: deadlines in line, caps of draining leases, looks grown old."""
        for ticket in self.line.expired(now):
            self._settle_refused(ticket, self._unless_empty(Reason.QUEUE_TIMEOUT), now)
        for address in self.ledger.expire(now):
            self._offer(address, now)
        self._serve(now)
        while self._fresh_until and next(iter(self._fresh_until.values())) <= now:
            address, _ = self._fresh_until.popitem(last=False)
            endpoint = self.fleet.get(address)
            if endpoint is not None:
                endpoint.is_fresh = False
                self._offer(address, now)
        self._wake()

    def next_wakeup(self) -> float | None:
        """When `advance` has something to do next, or None."""
        stale = next(iter(self._fresh_until.values()), None)
        times = (self.line.next_deadline(), self.ledger.next_expiry(), stale)
        return min((when for when in times if when is not None), default=None)

    # Choosing

    def _best_for(self, request: Request) -> Endpoint | None:
        address = self._picker.best_for(request.weight_slots)
        return None if address is None else self.fleet.get(address)

    def _pick(self, endpoint: Endpoint, request: Request, now: float, waited_s: float) -> Picked:
        address = endpoint.address
        lease = self.ledger.open(address, request.weight_slots, now)
        self._rank(endpoint)
        others = self._picker.best(1 + self.options.fallbacks)
        fallbacks = tuple(other for other in others if other != address)[: self.options.fallbacks]
        return Picked(lease=lease, fallbacks=fallbacks, waited_s=waited_s)

    def _offer(self, address: Address, now: float) -> None:
        """Something changed at an endpoint: rank it anew and serve the line."""
        self._place(address)
        self._serve(now)

    def _place(self, address: Address) -> None:
        """Rank an endpoint anew, or let it go when it was removed and nothing runs there."""
        endpoint = self.fleet.get(address)
        if endpoint is None:
            return
        if endpoint.is_removed and not self.ledger.account(address).leases:
            self._forget(address)
        else:
            self._rank(endpoint)

    def _serve(self, now: float) -> None:
        """Give free slots to the line, head first, until the head fits nowhere."""
        while (ticket := self.line.head()) is not None:
            endpoint = self._best_for(ticket.request)
            if endpoint is None:
                return
            self.line.leave(ticket)
            picked = self._pick(endpoint, ticket.request, now, now - ticket.entered_at)
            self._pace.handed_over(now)
            self._listener.settled(ticket, picked)
        self._pace.line_emptied()

    def _rank(self, endpoint: Endpoint) -> None:
        self._picker.place(endpoint, self.ledger.account(endpoint.address))

    def _forget(self, address: Address) -> None:
        self._picker.remove(address)
        self._fresh_until.pop(address, None)
        self.ledger.close_account(address)
        self.fleet.drop(address)
        self._listener.membership_changed()

    # Refusing

    def _unless_empty(self, reason: Reason) -> Reason:
        """Without any endpoint to wait for, that is the reason, whatever bound was met."""
        return reason if len(self._picker) else Reason.NO_ENDPOINT

    def _rejected(self, reason: Reason, waited_s: float) -> Rejected:
        retry_after_s = self._pace.retry_after_s(len(self.line))
        return Rejected(reason=reason, waited_s=waited_s, retry_after_s=retry_after_s)

    def _settle_refused(self, ticket: Ticket, reason: Reason, now: float) -> None:
        self._listener.settled(ticket, self._rejected(reason, now - ticket.entered_at))

    def _expect_next_look(self, endpoint: Endpoint, now: float) -> None:
        self._fresh_until[endpoint.address] = now + self.options.stale_after_s
        self._fresh_until.move_to_end(endpoint.address)
        if len(self._fresh_until) == 1:
            self._wake()

    def _wake(self) -> None:
        wakeup = self.next_wakeup()
        if wakeup is not None:
            self._listener.wake_at(wakeup)
