"""What becomes of a request: picked, queued or rejected; the reason is the metric's label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from extproc.core.address import Address
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Rejected
from extproc.core.slots.lease import Lease


class Picked(NamedTuple):
    """A lease is open on `lease.address`; `fallbacks` are next in order, without leases.

    `model` is what the request's model name was resolved to. `adapter_id` is the number of the
    wanted adapter on the picked server; a fallback may number it otherwise, so there is none.
    """

    lease: Lease
    fallbacks: tuple[Address, ...]
    waited_s: float
    model: str | None = None
    adapter_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """It waits; a `Settled` event tells of its end."""

    ticket: Ticket


Settlement = Picked | Rejected
Decision = Picked | Queued | Rejected
