"""Records for tests, as the core would tell them."""

from __future__ import annotations

from typing import Any

from extproc.core.address import Address
from extproc.core.exchange_record import ExchangeRecord, Outcome

ADDRESS = Address("10.0.0.1", 8080)


def record(**changes: Any) -> ExchangeRecord:
    """A request that was served after half a second in the queue, but for `changes`."""
    values: dict[str, Any] = {
        "exchange_id": "e1",
        "request_id": "r1",
        "outcome": Outcome.SERVED,
        "reason": None,
        "endpoint": ADDRESS,
        "status": 200,
        "attempts": 1,
        "waited_s": 0.5,
        "first_token_s": 0.75,
        "duration_s": 2.0,
        "began_at": 10.0,
        "decided_at": 10.0,
        "pick_s": 0.0001,
        "path": "/v1/chat/completions",
    }
    return ExchangeRecord(**(values | changes))
