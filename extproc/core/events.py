"""What the core asks of the code around it. The shell takes the events after each call.

Nothing outside the core is called in the middle of a decision: a call changes the state and leaves
events here, and the shell handles them later. So the state is consistent whatever the shell does
with an event, and however that fails.
"""

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from extproc.core.address import Address
from extproc.core.decision import Settlement
from extproc.core.observation import Issue
from extproc.core.queue.ticket import Ticket


class Settled(NamedTuple):
    """A queued request got its slot or was rejected. The receiver of this event owns the lease."""

    ticket: Ticket
    settlement: Settlement


class WakeRequested(NamedTuple):
    """Call `Dispatcher.advance` at this time, unless an earlier call is due already."""

    at: float


class ScrapeRequested(NamedTuple):
    """Scrape this endpoint soon: something happened there that only a scrape explains."""

    address: Address


class MembershipChanged(NamedTuple):
    """`Dispatcher.fleet.membership()` has changed."""


class EndpointEjected(NamedTuple):
    """A healthy endpoint failed requests and was ejected."""

    address: Address
    issue: Issue


class EndpointReadmitted(NamedTuple):
    """An ejected endpoint gets requests again, on probation."""

    address: Address


class StepFailed:
    """A step after a decision raised: a bug. The decision stands, the state is consistent.

    mypyc cannot compile a named tuple with an exception.
    """

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
        """End the wait of the ticket; the caller must still remove it from the queue."""
        ticket.is_waiting = False
        self._events.append(Settled(ticket, settlement))

    def settlement_of(self, ticket: Ticket) -> Settlement | None:
        """Remove the event about one ticket and return its settlement, or None."""
        for index, event in enumerate(self._events):
            if isinstance(event, Settled) and event.ticket is ticket:
                del self._events[index]
                return event.settlement
        return None

    def wake_at(self, when: float | None) -> None:
        """Request a call of `advance`; None requests nothing."""
        if when is not None and when < self._wake_at:
            self._wake_at = when

    def scrape(self, address: Address) -> None:
        self._events.append(ScrapeRequested(address))

    def membership_changed(self) -> None:
        self._events.append(MEMBERSHIP_CHANGED)

    def ejection_changed(self, address: Address, issue: Issue | None) -> None:
        """An endpoint was ejected for that reason, or readmitted if there is none."""
        self._events.append(
            EndpointReadmitted(address) if issue is None else EndpointEjected(address, issue)
        )

    def step_failed(self, step: str, error: Exception) -> None:
        self.has_failed = True
        self._events.append(StepFailed(step, error))

    def take(self) -> list[Event]:
        """Remove and return all events."""
        events = self._events
        self._events = []
        if self._wake_at < inf:
            events.append(WakeRequested(self._wake_at))
            self._wake_at = inf
        return events


class CallScope:
    """Surrounds each call that changes the state; calls may be nested.

    When a call or one of its steps raised, `repair` restores the state. When the outermost call
    ends and left events, `announce` notifies the shell.
    """

    def __init__(self, outbox: Outbox, repair: Callable[[], None]) -> None:
        self._outbox = outbox
        self._repair = repair
        self._depth = 0
        self.announce: Callable[[], None] | None = None
        """Set once by the shell; it must not raise. Until then events wait to be taken."""

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            if kind is not None or self._outbox.has_failed:
                self._outbox.has_failed = False
                self._repair()
            if self._outbox and self.announce is not None:
                self.announce()
