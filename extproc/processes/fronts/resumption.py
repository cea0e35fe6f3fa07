"""Continues the exchanges of a core that is gone, from what the fronts hold."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from extproc.core.address import Address
from extproc.core.constraints import NO_POOL
from extproc.core.held_state import LEASED, OVER, PASSING, QUEUED, HeldState
from extproc.core.request import HOLD_MARGIN_S
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.core.scheduler.takeover import Arrival, HeldLease, Place
from extproc.processes.fronts.returning_requests import ReturningRequests
from extproc.stream.envoy.codec import PROCESS
from extproc.stream.exchange import Exchange
from extproc.stream.running_stream import RunningStream
from extproc.stream.servicer import ExternalProcessor
from extproc.stream.stage import REPLIED, Stage
from extproc.transport import Call, CallHandler
from extproc.transport.long_wait import waits_long

log = logging.getLogger("coxswain.fronts")


class Resumption:
    """Resumes the calls of ext_proc, which are those at `path`. Belongs to one event loop."""

    path: Final = PROCESS

    def __init__(
        self,
        processor: ExternalProcessor,
        dispatcher: Dispatcher,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._processor = processor
        self.returning = ReturningRequests(dispatcher, clock, wall_clock)
        self._left: list[str] = []
        """The queued requests of the front that is being lost."""

    def state_of(self, handler: CallHandler) -> HeldState | None:
        """What the front must know; None if it is what it was sent before."""
        return held_state(_stream(handler).exchange)

    def begin(
        self, call: Call, exchange_id: str, began_at: float, pool: str = NO_POOL
    ) -> CallHandler:
        """A call, whose messages follow. `pool` is that of the port that it came to."""
        return self._processor.begin(call, began_at, exchange_id, pool)

    def resume(self, handler: CallHandler, message: bytes, state: HeldState) -> None:
        """It holds slots; `message` is its first."""
        _stream(handler).resume(message, lease_of(state))

    def place(self, handler: CallHandler, state: HeldState) -> None:
        """It is queued; its messages follow."""
        _stream(handler).exchange.place = place_of(state)

    def leave(self, handler: CallHandler) -> None:
        """Its front is lost."""
        stream = _stream(handler)
        ticket, state = stream.ticket, held_state(stream.exchange)
        if ticket is not None and state is not None and ticket.request.id:
            comes_back = waits_long(stream.metadata)
            self.returning.keep(ticket.request.id, place_of(state), comes_back=comes_back)
            self._left.append(ticket.request.id)

    def claim(self, handler: CallHandler, message: bytes) -> None:
        """A new call, before its first message: its request may have had a place at a front that
        was lost, or may have come to it."""
        stream = _stream(handler)
        found = self.returning.claim(message, says_arrival=waits_long(stream.metadata))
        if isinstance(found, Place):
            stream.exchange.place = found
        elif found is not None:
            # Its Envoy has our configuration for fronts: the patience of the longest wait, however
            # short this one is.
            patience_s = self._processor.options.queue.timeout_s + HOLD_MARGIN_S
            stream.exchange.arrival = Arrival(found, given_up_at=found + patience_s)

    def front_silent(self, front: str) -> None:
        """A front stands still: requests may be there that nobody has seen."""
        self.returning.silent(front)

    def front_heard(self, front: str) -> None:
        """It goes on."""
        self.returning.heard(front)

    def front_lost(self, front: str) -> None:
        """A front is lost, and all its calls have left."""
        left, self._left = self._left, []
        self.returning.lost(front)
        for request_id in left:  # Envoy may be faster than the news of the loss
            try:
                self.returning.claim_by(request_id, self._processor.move)
            except Exception:
                log.exception("giving a request its place again failed")

    def leader_lost(self) -> None:
        """The leader before this one was on another machine, whose fronts are lost too: their
        requests come to other fronts."""
        self.returning.leader_lost()

    def hold(self) -> None:
        """Assign no slots until `assign`."""
        self.returning.hold()

    def assign(self) -> None:
        """Everything is placed."""
        self.returning.assign()


def _stream(handler: CallHandler) -> RunningStream:
    assert isinstance(handler, RunningStream)
    return handler


# Between an exchange and what a front knows of it


def held_state(exchange: Exchange) -> HeldState | None:
    """Its state now; None while it is undecided, or as the front knows it."""
    stage, ticket = exchange.stage, exchange.ticket
    if ticket is not None:
        return (QUEUED, ticket.id, ticket.entered_at)
    if stage is Stage.LEASED:
        held = exchange.held_lease()
        return None if held is None else (LEASED, *_plain(held))
    if stage is Stage.PASSING:
        return (PASSING,)
    # A front ends the call of an exchange that is over: not before its reply is there.
    return (OVER,) if stage in REPLIED and not exchange.has_replies else None


def place_of(state: HeldState) -> Place:
    """The place in a `QUEUED` state."""
    return Place(*state[1:])


def lease_of(state: HeldState) -> HeldLease:
    """The lease in a `LEASED` state."""
    _, address, *plain, fallbacks = state
    return HeldLease._make((Address.parse(address), *plain, tuple(map(Address.parse, fallbacks))))


def _plain(held: HeldLease) -> tuple[Any, ...]:
    return (str(held.address), *held[1:-1], tuple(map(str, held.fallbacks)))
