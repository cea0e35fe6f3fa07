"""Uploads that hold slots: requests that got a slot before their body was complete.

A client that sends slowly wastes its slot until it is ended. Many such clients, one after another,
would waste all slots. So the time that other requests waited for slow uploads is added up by
tenant, with a decay of a minute. A tenant whose uploads wasted more than a share of the fleet is a
suspect for a while: its uploads take only a few slots at once, and are not queued. Complete
requests and other tenants are not affected.
"""

from collections import OrderedDict
from math import exp
from typing import Final, NamedTuple

from extproc.core.request import Request
from extproc.core.slots.lease import Lease

MEMORY_S: Final = 60.0
"""Within this time a waste decays to a third."""
MAX_WASTE_SHARE: Final = 0.02
MIN_WASTE_S: Final = 3.0
"""The share of the slot-seconds in `MEMORY_S` that may be wasted, and the least amount in a small
fleet: one client with a bad connection makes no tenant a suspect."""
SUSPICION_S: Final = 300.0
SLOTS_PER_UPLOAD: Final = 8
"""A suspect's upload gets a slot while uploads hold fewer than one slot in this number."""
MAX_TENANTS: Final = 1024


class Waste(NamedTuple):
    """Slot-seconds as of `at`; the tenant is a suspect until `suspect_until`."""

    slot_s: float
    at: float
    suspect_until: float


class Uploads:
    """The uploads that hold slots, and the tenants that were too slow. Every call is O(1)."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._wastes: OrderedDict[str, Waste] = OrderedDict()
        self._slots = 0

    def __len__(self) -> int:
        return len(self._open)

    def upload_began(self, lease: Lease) -> None:
        """A request with an incomplete body got a slot."""
        self._open.add(lease.id)

    def upload_ended(self, lease: Lease) -> None:
        """The body is complete, or the request ended; no error for other leases."""
        self._open.discard(lease.id)

    def faults(self, open_ids: set[int]) -> list[str]:
        """Uploads without an open lease."""
        return [f"an upload of lease {id_}, which is not open" for id_ in self._open - open_ids]

    def rebuild(self, open_ids: set[int]) -> None:
        """Keep the uploads with an open lease."""
        self._open &= open_ids

    def failed(self, request: Request, wasted_s: float, slots: int, now: float) -> None:
        """An upload was ended after it wasted `wasted_s`, in a fleet of `slots`."""
        self._slots = slots
        before = self._wastes.pop(request.tenant, Waste(0.0, now, 0.0))
        slot_s = before.slot_s * exp((before.at - now) / MEMORY_S) + wasted_s
        is_too_much = slot_s > max(MIN_WASTE_S, MAX_WASTE_SHARE * MEMORY_S * slots)
        until = now + SUSPICION_S if is_too_much else before.suspect_until
        self._wastes[request.tenant] = Waste(slot_s, now, until)
        if len(self._wastes) > MAX_TENANTS:
            self._wastes.popitem(last=False)

    def is_suspect(self, request: Request, now: float) -> bool:
        """Whether it is an upload of a suspect tenant."""
        return request.is_partial and self.is_suspect_tenant(request.tenant, now)

    def is_suspect_tenant(self, tenant: str, now: float) -> bool:
        """Whether its uploads wasted too much lately."""
        if not self._wastes:
            return False
        waste = self._wastes.get(tenant)
        return waste is not None and now < waste.suspect_until

    def may_begin(self, request: Request, now: float) -> bool:
        """Whether the limits on uploads allow it to take a slot."""
        if not self.is_suspect(request, now):
            return True
        return len(self._open) < max(1, self._slots // SLOTS_PER_UPLOAD)
