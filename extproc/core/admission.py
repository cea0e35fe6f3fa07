"""What becomes of a newcomer: a slot now, a place in line, or a refusal. Decided here, not done."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from extproc.core.objective import Criticality
from extproc.core.outcome import Reason

if TYPE_CHECKING:
    from random import Random

    from extproc.core.address import Address
    from extproc.core.chooser import Home
    from extproc.core.desk import Desk
    from extproc.core.objective import Objective
    from extproc.core.order import Order
    from extproc.core.queue import Line, Ticket
    from extproc.core.request import Request


class Preview(NamedTuple):
    """What would become of a request: picked there, or queued, for its `home` alone if it has
    one; or refused."""

    address: Address | None
    home: Address | None
    reason: Reason | None


class Admission:
    """Reads the desk and the line; changes nothing. `max_queued` is how many may wait."""

    def __init__(self, desk: Desk, line: Line, random: Random) -> None:
        self._desk = desk
        self._line = line
        self._random = random

    def goal(
        self, order: Order, request: Request, max_queued: int, now: float
    ) -> tuple[Address | None, Home | None]:
        """Where it finds a slot now, if anywhere; and the busy endpoint that is worth more."""
        address = self._desk.find(order, request, now)
        may_wait = request.timeout_s > 0 and order.objective.criticality < Criticality.SHEDDABLE
        if address is None or not may_wait or len(self._line) >= max_queued:
            return address, None
        return address, self._desk.home_of(order, request, address, now)

    def why_not_wait(
        self, request: Request, objective: Objective, max_queued: int
    ) -> Reason | None:
        """Why one that finds no slot may not enter the line, None when it may. A line that is
        full may have a `victim`."""
        if objective.criticality is Criticality.SHEDDABLE:
            return Reason.SHED
        if request.timeout_s <= 0:
            return Reason.QUEUE_TIMEOUT if max_queued else Reason.QUEUE_FULL
        return Reason.QUEUE_FULL if len(self._line) >= max_queued else None

    def victim(self, objective: Objective) -> Ticket | None:
        """Who has to leave a full line for a request of that objective; None if nobody has."""
        return self._line.newest_below(objective.criticality)

    def preview(self, order: Order, request: Request, max_queued: int, now: float) -> Preview:
        """What would become of it now. Chance is left as it was."""
        before = self._random.getstate()
        try:
            address, home = self.goal(order, request, max_queued, now)
        finally:
            self._random.setstate(before)
        if address is not None:
            return Preview(address if home is None else None, home and home.address, None)
        reason = self.why_not_wait(request, order.objective, max_queued)
        if reason is Reason.QUEUE_FULL and self.victim(order.objective) is not None:
            reason = None
        return Preview(None, None, reason and self._desk.unless_empty(reason, order.demand))
