"""What became of one exchange: the fact that logs, metrics and traces are made of."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from extproc.core.address import Address
from extproc.core.rejection import Reason


class Outcome(Enum):
    """How an exchange ended, as one label."""

    SERVED = "served"
    PASSED = "passed"  # took no slot
    REJECTED = "rejected"  # refused; the reason says why
    WITHDRAWN = "withdrawn"  # its client left while it waited
    BROKEN = "broken"  # it broke off after a slot was given: client left or server died


class ExchangeRecord(NamedTuple):
    """One exchange, told once at its end. Times are seconds; `status` is 0 when none was sent.

    `request_id` is the client's `x-request-id`; `endpoint` is who served, or who was picked;
    `path` is without its query. `began_at` and `decided_at` are monotonic; `decided_at` is when
    enough of the request had come to decide about it, and its wait began, if it had to wait; None
    when it ended before that. `pick_s` is how long the decision took. `trace_parent` is the
    caller's `traceparent` as it was written, unchecked. `criticality` is the request's class,
    empty where it takes no slot.
    """

    exchange_id: str
    request_id: str
    outcome: Outcome
    reason: Reason | None
    endpoint: Address | None
    status: int
    attempts: int
    waited_s: float
    first_token_s: float | None
    duration_s: float
    began_at: float = 0.0
    decided_at: float | None = None
    pick_s: float = 0.0
    path: str = ""
    model: str = ""
    criticality: str = "standard"
    trace_parent: str = ""
