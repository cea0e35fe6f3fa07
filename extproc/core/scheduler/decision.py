"""What becomes of a request: picked, queued or rejected; the reason is the metric's label."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from extproc.core.address import Address
from extproc.core.queue.ticket import Ticket
from extproc.core.slots.lease import Lease


class Reason(Enum):
    """Why a request was refused; the value is what clients read in `x-coxswain-reason`."""

    QUEUE_FULL = "queue-full"
    QUEUE_TIMEOUT = "queue-timeout"
    NO_ENDPOINT = "no-endpoint"
    SHUTTING_DOWN = "shutting-down"
    BAD_REQUEST = "bad-request"
    CANCELLED = "cancelled"
    UPLOAD_STALLED = "upload-stalled"
    SHED = "shed"
    EVICTED = "evicted"
    MODEL_NOT_FOUND = "model-not-found"
    BLOCKED_PATH = "blocked-path"
    INTERNAL_ERROR = "internal-error"
    POISON_REQUEST = "poison-request"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Refused; `retry_after_s` is when a new try may do better, as far as we can tell."""

    reason: Reason
    waited_s: float
    retry_after_s: float


Settlement = Picked | Rejected
Outcome = Picked | Queued | Rejected
