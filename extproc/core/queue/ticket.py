"""A queued request, and the ids of tickets, which are their places: a lower one arrived earlier."""

from __future__ import annotations

from typing import Final

from extproc.core.address import Address
from extproc.core.bounds import BoundsOfRequest
from extproc.core.objective import Criticality, Objective
from extproc.core.queue.fair_queueing import Flow
from extproc.core.request import Request, ResolvedRequest
from extproc.core.request_groups import Group
from extproc.core.slots.endpoint_slots import Reservation

ExpectedSize = tuple[float, int]
"""The slot-seconds that a request is expected to take, 0 if unknown, and its class: a lower one is
served first in its flow where the order has classes."""
UNKNOWN_SIZE: Final = (0.0, 0)
IDS_PER_SECOND: Final = 1_000_000


class Ticket:
    """A queued request. It ends once: served, rejected at its deadline, or withdrawn."""

    __slots__ = (
        "body_bytes",
        "constraints",
        "deadline",
        "entered_at",
        "expected_slot_s",
        "flow",
        "held_by",
        "id",
        "is_waiting",
        "order_class",
        "pinned_to",
        "queued_in",
        "request",
        "reservation",
        "reserved_at",
        "resolved",
        "subqueue_key",
        "waits_since",
    )

    def __init__(
        self, id_: int, request: Request, now: float, resolved: ResolvedRequest, flow: Flow
    ) -> None:
        self.id = id_
        self.request = request
        self.body_bytes = request.body_bytes
        self.entered_at = now
        self.expected_slot_s = 0.0
        """As expected when it was queued."""
        self.order_class = 0
        self.deadline = now + request.timeout_s
        self.is_waiting = True
        self.resolved = resolved
        self.constraints = resolved.constraints
        """The constraints that apply now."""
        self.flow = flow
        objective = resolved.objective
        slo_objective = objective.name if objective.has_slo else None
        self.subqueue_key = (objective.criticality, slo_objective)
        self.queued_in: object | None = None
        """The queue of its constraints, by identity; None if slots are reserved for it, or it is
        held back."""
        self.held_by: Group | None = None
        """The session or flow at its limit that holds it back, or did so when it left the queue."""
        self.waits_since = now
        """Since when it may be assigned a slot, if it is not held back: since it was queued, or let
        in."""
        self.pinned_to: Address | None = None
        """The endpoint that it was pinned to: see `extproc.core.queue.affinity_wait`."""
        self.reservation: Reservation | None = None
        """The slots that are reserved for it, until enough of them are free."""
        self.reserved_at: Address | None = None
        """Where slots were last reserved for it, also after it has left the queue."""

    @property
    def objective(self) -> Objective:
        return self.resolved.objective

    @property
    def criticality(self) -> Criticality:
        return self.subqueue_key[0]

    def makes_place(self, least_bytes: int, bounds: BoundsOfRequest, pool: str) -> bool:
        """Whether it holds that many body bytes, is under all of these bounds, and is for this
        pool: if it left, another such request could be queued."""
        if self.request.pool != pool or self.body_bytes < least_bytes:
            return False
        return all(bound in self.resolved.bounds for bound in bounds)

    def __lt__(self, other: Ticket) -> bool:
        return self.id < other.id


class TicketIds:
    """An id is the microsecond of the arrival, or the next one if that is used.

    So a request that is heard of late, because it reached a process that stood still, finds its
    place between others. Times are seconds of one monotonic clock. Another process of the machine
    gives ids that go on with these; those of a leader on another machine are below a base.
    """

    __slots__ = ("_base", "_began_at", "_earlier_shift", "_shift", "last")

    def __init__(self) -> None:
        self.last = 0
        """The highest that is used."""
        self._shift = 0
        """What an id is more than its microsecond."""
        self._base = 0
        self._began_at = 0.0
        self._earlier_shift: int | None = None
        """The same for ids of the leader before, if any is known."""

    def begin(self, base: int, now: float) -> None:
        """From now on ids are above `base`, and those of leaders before this one are not."""
        self._base, self._began_at = base, now
        self.last = max(self.last, base)
        self._shift = max(self._shift, base - _us(now))

    def next(self, now: float) -> int:
        """The id of a request that arrives now: the highest."""
        self.last = max(self.last + 1, self._shift + _us(now))
        return self.last

    def at(self, arrived_at: float) -> int:
        """The id of a request that arrived then. Another may have it."""
        if arrived_at < self._began_at and self._earlier_shift is not None:
            return min(self._earlier_shift + _us(arrived_at), self._base)
        return self._shift + _us(arrived_at)

    def use(self, id_: int, arrived_at: float) -> None:
        """Another process has given this id to a request that arrived then."""
        shift = id_ - _us(arrived_at)
        if id_ < self._base:
            known = self._earlier_shift
            self._earlier_shift = shift if known is None else max(shift, known)
            return
        self.last = max(self.last, id_)
        self._shift = max(self._shift, shift)


def _us(seconds: float) -> int:
    return int(seconds * IDS_PER_SECOND)
