"""Admission of an arrival: assign a slot, queue or reject. Decides only; changes nothing."""

from extproc.core.address import Address
from extproc.core.bounds import is_held_back, lacks_place
from extproc.core.decision import Preview
from extproc.core.objective import Criticality, Objective
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason
from extproc.core.request import Request, ResolvedRequest
from extproc.core.request_groups import full_group
from extproc.core.scheduler.slot_allocator import SlotAllocator
from extproc.core.selection.endpoint_picker import AffinityTarget
from extproc.core.state import State


class Admission:
    """Reads the slot allocator and the queue; changes nothing."""

    def __init__(self, allocator: SlotAllocator, state: State) -> None:
        self._allocator = allocator
        self._state = state

    def goal(
        self, resolved: ResolvedRequest, request: Request, now: float
    ) -> tuple[Address | None, AffinityTarget | None]:
        """The endpoint with a slot now, if any, and the busy endpoint worth waiting for."""
        if resolved.bounds and is_held_back(resolved.bounds):
            return None, None
        if resolved.groups and full_group(resolved.groups) is not None:
            return None, None
        address = self._allocator.find_available(resolved, request, now)
        may_wait = request.timeout_s > 0 and resolved.objective.criticality < Criticality.SHEDDABLE
        if address is None or not may_wait:
            return address, None
        target = self._state.endpoint_picker.affinity_target(resolved, request, address, now)
        if target is not None and self._is_full(request, resolved):
            return address, None
        return address, target

    def why_not_wait(
        self, request: Request, resolved: ResolvedRequest, now: float
    ) -> Reason | None:
        """Why a request that finds no slot may not be queued, None if it may. A full queue may
        have a `victim`. A suspect's upload is never queued: see `uploads`."""
        held_back: Reason | None = None
        if full_group(resolved.groups) is not None:
            held_back = Reason.RATE_LIMITED
        elif is_held_back(resolved.bounds):
            held_back = Reason.BOUND_REACHED
        if not self._may_wait(request, resolved.objective, now):
            return held_back or Reason.SHED
        if request.timeout_s <= 0:
            if held_back is not None:
                return held_back
            has_queue = self._state.options.queue.has_queue
            return Reason.QUEUE_TIMEOUT if has_queue else Reason.QUEUE_FULL
        if lacks_place(resolved.bounds):
            return Reason.BOUND_REACHED
        return Reason.QUEUE_FULL if self._is_full(request, resolved) else None

    def _may_wait(self, request: Request, objective: Objective, now: float) -> bool:
        is_suspect = self._state.uploads.is_suspect(request, now)
        return objective.criticality is not Criticality.SHEDDABLE and not is_suspect

    def _is_full(self, request: Request, resolved: ResolvedRequest) -> bool:
        return self._state.options.queue.is_full(self._state.queue, request, resolved)

    def victim(
        self, reason: Reason | None, request: Request, resolved: ResolvedRequest
    ) -> Ticket | None:
        """The request to evict for one that may not be queued for that reason, or None: its place
        in the queue, and in the queues of the bounds, is then free. What a session or a flow holds
        back leaves for any other request that is no less critical."""
        full = tuple(bound for bound in resolved.bounds if bound.is_queue_full)
        is_for_a_place = reason is Reason.BOUND_REACHED and full and request.timeout_s > 0
        if reason is not Reason.QUEUE_FULL and not is_for_a_place:
            return None
        criticality = resolved.objective.criticality
        if criticality is Criticality.SHEDDABLE:
            return None
        queue = self._state.queue
        least_bytes = self._state.options.queue.lacks_bytes(queue, request)
        held_back = None
        if full_group(resolved.groups) is None:
            held_back = queue.newest_held_back(criticality, least_bytes, full, request.pool)
        return held_back or queue.newest_below(criticality, least_bytes, full, request.pool)

    def preview(
        self, resolved: ResolvedRequest, request: Request, now: float, *, may_queue: bool = True
    ) -> Preview:
        """What would happen to the request now. The random state is restored."""
        before = self._state.random.getstate()
        try:
            address, target = self.goal(resolved, request, now)
        finally:
            self._state.random.setstate(before)
        if address is not None:
            if target is None or not may_queue:
                return Preview(address, None, None)
            return Preview(None, target.address, None)
        reason = self.why_not_wait(request, resolved, now)
        if not may_queue and (reason is None or reason is Reason.QUEUE_FULL):
            reason = Reason.RATE_LIMITED
        if self.victim(reason, request, resolved) is not None:
            reason = None
        return Preview(
            None, None, reason and self._allocator.unless_empty(reason, resolved.constraints)
        )
