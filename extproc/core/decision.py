"""The decision on a request: picked, queued or rejected; the reason is the metric's label."""

from dataclasses import dataclass
from typing import NamedTuple

from extproc.core.address import Address
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Reason, Rejected
from extproc.core.slots.lease import Lease


class Picked(NamedTuple):
    """A lease is open on `lease.address`; `fallbacks` are the next endpoints, without leases.

    `model` is the model that the request's name was resolved to. `adapter_id` is the number of
    the requested adapter on the picked server; a fallback may number it differently, so there is
    none for fallbacks. With `is_restricted` there are endpoints that cannot serve the request.
    """

    lease: Lease
    fallbacks: tuple[Address, ...]
    waited_s: float
    model: str | None = None
    adapter_id: int | None = None
    is_restricted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """The request is queued; a `Settled` event reports the end of its wait."""

    ticket: Ticket


Settlement = Picked | Rejected
Decision = Picked | Queued | Rejected


class Preview(NamedTuple):
    """What would become of a request: picked at `address`; queued, for `waits_for` alone if that
    is set; or rejected with `reason`."""

    address: Address | None
    waits_for: Address | None
    reason: Reason | None
