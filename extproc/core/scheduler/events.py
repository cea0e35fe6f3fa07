"""What a call into the core asks of its surroundings. The shell takes it after the call.

Nothing outside is called in the middle of a decision: a call changes the books, leaves events
here, and only then does the shell hear of them. So whatever the shell does with an event, and
however that fails, the books are whole.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from extproc.core.address import Address
from extproc.core.observation import Issue
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.decision import Settlement


class Settled(NamedTuple):
    """A waiting request got its slot or was rejected. Whoever takes this event owns the lease."""

    ticket: Ticket
    settlement: Settlement


class WakeRequested(NamedTuple):
    """Call `Dispatcher.advance` at this time, unless an earlier call is due already."""

    at: float


class ScrapeRequested(NamedTuple):
    """Scrape this endpoint soon: something happened there that only a scrape explains."""

    address: Address


class MembershipChanged(NamedTuple):
    """`Dispatcher.fleet.membership()` is another one than before."""


class EndpointEjected(NamedTuple):
    """A healthy endpoint failed requests and was ejected."""

    address: Address
    issue: Issue


class EndpointReadmitted(NamedTuple):
    """An ejected endpoint gets requests again, on probation."""

    address: Address


class StepFailed:
    """A step that follows a decision raised: a bug. The decision stands, the books are whole."""

    __slots__ = ("error", "step")

    def __init__(self, step: str, error: Exception) -> None:
        self.step = step
        self.error = error


Event = (
    Settled
    | WakeRequested
    | ScrapeRequested
    | MembershipChanged
    | EndpointEjected
    | EndpointReadmitted
    | StepFailed
)
MEMBERSHIP_CHANGED: Final = MembershipChanged()


class Outbox:
    """The events of the calls so far, in order. At most as many as one call makes."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._wake_at = inf
        self.has_failed = False
        """Whether a step failed since this was last set to False."""

    def __bool__(self) -> bool:
        return bool(self._events) or self._wake_at < inf

    def settle(self, ticket: Ticket, settlement: Settlement) -> None:
        """The ticket waits no more; it still has to be taken out of the queue."""
        ticket.is_waiting = False
        self._events.append(Settled(ticket, settlement))

    def settlement_of(self, ticket: Ticket) -> Settlement | None:
        """Take back the event about one ticket: its settlement, None if there is none."""
        for index, event in enumerate(self._events):
            if isinstance(event, Settled) and event.ticket is ticket:
                del self._events[index]
                return event.settlement
        return None

    def wake_at(self, when: float | None) -> None:
        """Ask for a call of `advance`; None asks for nothing."""
        if when is not None and when < self._wake_at:
            self._wake_at = when

    def scrape(self, address: Address) -> None:
        self._events.append(ScrapeRequested(address))

    def membership_changed(self) -> None:
        self._events.append(MEMBERSHIP_CHANGED)

    def ejected(self, address: Address, issue: Issue) -> None:
        self._events.append(EndpointEjected(address, issue))

    def readmitted(self, address: Address) -> None:
        self._events.append(EndpointReadmitted(address))

    def step_failed(self, step: str, error: Exception) -> None:
        self.has_failed = True
        self._events.append(StepFailed(step, error))

    def take(self) -> list[Event]:
        """Everything that is here; it is the caller's now."""
        events = self._events
        self._events = []
        if self._wake_at < inf:
            events.append(WakeRequested(self._wake_at))
            self._wake_at = inf
        return events


class CallScope:
    """Surrounds each call that changes the books. May be entered again by an inner call.

    When a call or one of its steps raised, `repair` makes the books whole. When the outermost
    call is over and left events, `announce` tells the shell.
    """

    def __init__(self, outbox: Outbox, repair: Callable[[], None]) -> None:
        self._outbox = outbox
        self._repair = repair
        self._depth = 0
        self.announce: Callable[[], None] = _nobody
        """Set once by the shell; it must not raise."""

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            if kind is not None or self._outbox.has_failed:
                self._outbox.has_failed = False
                self._repair()
            if self._outbox:
                self.announce()


def _nobody() -> None:
    """Nobody takes events yet: they wait."""
