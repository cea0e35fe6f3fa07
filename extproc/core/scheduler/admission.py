"""What becomes of a newcomer: a slot now, a place in line, or a refusal. Decided here, not done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from extproc.core.objective import Criticality
from extproc.core.rejection import Reason

if TYPE_CHECKING:
    from random import Random

    from extproc.core.address import Address
    from extproc.core.objective import Objective
    from extproc.core.queue.request_queue import RequestQueue
    from extproc.core.queue.ticket import Ticket
    from extproc.core.request import Request
    from extproc.core.resolved_request import ResolvedRequest
    from extproc.core.scheduler.slot_allocator import SlotAllocator
    from extproc.core.selection.endpoint_picker import AffinityTarget
    from extproc.core.slots.uploads import Uploads


class Preview(NamedTuple):
    """What would become of a request: picked there, or queued, for its `home` alone if it has
    one; or refused."""

    address: Address | None
    home: Address | None
    reason: Reason | None


SHORT_BODY_BYTES: Final = 65_536
"""A body of this length waits also where the bytes are used up: a queue full of such bodies takes
little, and a few long bodies must not reject all others."""


class QueueLimits(NamedTuple):
    """How many requests may wait, and how much of their bodies may be kept meanwhile."""

    requests: int
    body_bytes: int


class Admission:
    """Reads the desk and the line; changes nothing."""

    def __init__(
        self, desk: SlotAllocator, line: RequestQueue, uploads: Uploads, random: Random
    ) -> None:
        self._desk = desk
        self._line = line
        self._uploads = uploads
        self._random = random

    def goal(
        self, order: ResolvedRequest, request: Request, limits: QueueLimits, now: float
    ) -> tuple[Address | None, AffinityTarget | None]:
        """Where it finds a slot now, if anywhere; and the busy endpoint that is worth more."""
        address = self._desk.find_available(order, request, now)
        may_wait = request.timeout_s > 0 and order.objective.criticality < Criticality.SHEDDABLE
        if address is None or not may_wait or self._is_full(request, limits):
            return address, None
        return address, self._desk.affinity_target(order, request, address, now)

    def why_not_wait(
        self, request: Request, objective: Objective, limits: QueueLimits, now: float
    ) -> Reason | None:
        """Why one that finds no slot may not enter the line, None when it may. A line that is
        full may have a `victim`. A suspect's upload waits for no slot: see `uploads`."""
        if objective.criticality is Criticality.SHEDDABLE or self._uploads.is_suspect(request, now):
            return Reason.SHED
        if request.timeout_s <= 0:
            return Reason.QUEUE_TIMEOUT if limits.requests else Reason.QUEUE_FULL
        return Reason.QUEUE_FULL if self._is_full(request, limits) else None

    def _is_full(self, request: Request, limits: QueueLimits) -> bool:
        return len(self._line) >= limits.requests or self.lacks_bytes(request, limits) > 0

    def lacks_bytes(self, request: Request, limits: QueueLimits) -> int:
        """How much of others' bodies would have to go for this request to wait."""
        if request.body_bytes <= SHORT_BODY_BYTES:
            return 0
        return max(0, self._line.body_bytes + request.body_bytes - limits.body_bytes)

    def victim(self, request: Request, objective: Objective, limits: QueueLimits) -> Ticket | None:
        """Who has to leave a full line for a request of that objective; None if nobody has."""
        lacks_bytes = self.lacks_bytes(request, limits)
        return self._line.newest_below(objective.criticality, lacks_bytes)

    def preview(
        self, order: ResolvedRequest, request: Request, limits: QueueLimits, now: float
    ) -> Preview:
        """What would become of it now. Chance is left as it was."""
        before = self._random.getstate()
        try:
            address, home = self.goal(order, request, limits, now)
        finally:
            self._random.setstate(before)
        if address is not None:
            return Preview(address if home is None else None, home and home.address, None)
        reason = self.why_not_wait(request, order.objective, limits, now)
        if (
            reason is Reason.QUEUE_FULL
            and self.victim(request, order.objective, limits) is not None
        ):
            reason = None
        return Preview(None, None, reason and self._desk.unless_empty(reason, order.constraints))
