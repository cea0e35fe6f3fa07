"""Handles the core's events after each call, when the ledger is consistent."""

import logging
from collections.abc import Callable
from typing import assert_never

from extproc.core.address import Address
from extproc.core.decision import Picked
from extproc.core.events import (
    EndpointEjected,
    EndpointReadmitted,
    Event,
    MembershipChanged,
    ScrapeRequested,
    Settled,
    StepFailed,
    WakeRequested,
)
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.slots.lease import LeaseEnd
from extproc.stream.pending_streams import PendingStreams

log = logging.getLogger("coxswain.core")


class CoreEvents:
    """Belongs to one event loop. Never raises: an event that cannot be carried out is logged, and
    a lease that nobody took is given back."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        pending_streams: PendingStreams,
        clock: Callable[[], float],
        *,
        wake_at: Callable[[float], None],
        scrape: Callable[[Address], None],
        membership_changed: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._pending_streams = pending_streams
        self._clock = clock
        self._wake_at = wake_at
        self._scrape = scrape
        self._membership_changed = membership_changed
        self._name_of = dispatcher.fleet.full_name_of
        self._is_taking = False

    def listen(self) -> None:
        """Take every event from now on, and those that are there."""
        self._dispatcher.on_events(self._take)
        self._take()

    def _take(self) -> None:
        if self._is_taking:
            return  # handling an event made more: the loop below handles them next
        self._is_taking = True
        try:
            while events := self._dispatcher.take_events():
                for event in events:
                    self._carry_out(event)
        finally:
            self._is_taking = False

    def _carry_out(self, event: Event) -> None:
        try:
            match event:
                case Settled():
                    self._settle(event)
                case WakeRequested(at=at):
                    self._wake_at(at)
                case ScrapeRequested(address=address):
                    self._scrape(address)
                case MembershipChanged():
                    self._membership_changed()
                case EndpointEjected(address=address, issue=issue):
                    log.warning("endpoint %s: %s", self._name_of(address), issue)
                case EndpointReadmitted(address=address):
                    log.info("endpoint %s: readmitted; it is on probation", self._name_of(address))
                case StepFailed(step=step, error=error):
                    log.error("%s failed; the ledger is consistent", step, exc_info=error)
                case _:
                    assert_never(event)
        except Exception:
            log.exception("handling the event %s of the core failed", type(event).__name__)

    def _settle(self, event: Settled) -> None:
        is_taken = False
        try:
            is_taken = self._pending_streams.settled(event.ticket, event.settlement)
        finally:
            if not is_taken and isinstance(event.settlement, Picked):
                log.warning("%s was for a stream that has ended", event.settlement.lease)
                # Nothing was sent to its server, so its slot is free at once.
                self._dispatcher.release(event.settlement.lease, LeaseEnd.SERVED, self._clock())
