"""Hands the core's events to a listener, as the service does: after each call."""

from typing import Protocol, assert_never

from extproc.core.address import Address
from extproc.core.decision import Settlement
from extproc.core.events import (
    EndpointEjected,
    EndpointReadmitted,
    MembershipChanged,
    ScrapeRequested,
    Settled,
    StepFailed,
    WakeRequested,
)
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.dispatcher import Dispatcher


class Listener(Protocol):
    def settled(self, ticket: Ticket, settlement: Settlement) -> object: ...

    def wake_at(self, when: float) -> None: ...

    def membership_changed(self) -> None: ...

    def unsure_of(self, address: Address) -> None: ...


def listen(dispatcher: Dispatcher, listener: Listener) -> Dispatcher:
    """Let `listener` hear of everything from now on; returns the dispatcher. A step of the core
    that failed raises."""

    def take() -> None:
        for event in dispatcher.take_events():
            match event:
                case Settled(ticket=ticket, settlement=settlement):
                    listener.settled(ticket, settlement)
                case WakeRequested(at=at):
                    listener.wake_at(at)
                case ScrapeRequested(address=address):
                    listener.unsure_of(address)
                case MembershipChanged():
                    listener.membership_changed()
                case EndpointEjected() | EndpointReadmitted():
                    pass  # for the log; the endpoint says so itself
                case StepFailed(error=error):
                    raise error
                case _:
                    assert_never(event)

    dispatcher.on_events(take)
    return dispatcher
