"""A queued request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from extproc.core.address import Address
from extproc.core.objective import Criticality, Objective
from extproc.core.queue.fair_queueing import Flow
from extproc.core.request import Request
from extproc.core.resolved_request import ResolvedRequest
from extproc.core.slots.reservation import Reservation

if TYPE_CHECKING:
    from extproc.core.queue.constraint_queue import ConstraintQueue


ExpectedSize = tuple[float, int]
"""The slot-seconds that a request is expected to take, 0 if unknown, and the class of its size: a
lower one is served first where the order is by size."""
UNKNOWN_SIZE: Final = (0.0, 0)


class Ticket:
    """A queued request. It ends once: served, rejected at its deadline, or withdrawn."""

    __slots__ = (
        "body_bytes",
        "constraint_queue",
        "constraints",
        "deadline",
        "entered_at",
        "expected_slot_s",
        "flow",
        "id",
        "is_waiting",
        "pinned_to",
        "request",
        "reservation",
        "reserved_at",
        "resolved",
        "size_class",
        "subqueue_key",
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
        self.size_class = 0
        self.deadline = now + request.timeout_s
        self.is_waiting = True
        self.resolved = resolved
        self.constraints = resolved.constraints
        """The constraints that apply now."""
        self.flow = flow
        objective = resolved.objective
        slo_objective = objective.name if objective.has_slo else None
        self.subqueue_key = (objective.criticality, slo_objective)
        self.constraint_queue: ConstraintQueue | None = None
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

    def __lt__(self, other: Ticket) -> bool:
        return self.id < other.id
