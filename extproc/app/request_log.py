"""One line for each request that ended, with what one looks for first."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from extproc.core.record import ExchangeRecord

log = logging.getLogger("coxswain.request")


def log_request(record: ExchangeRecord, trace_id: str) -> None:
    """Write the line. No path, header or body of a client is in it but its request id."""
    if not log.isEnabledFor(logging.INFO):
        return
    request_id = record.request_id or record.exchange_id
    endpoint = str(record.endpoint) if record.endpoint is not None else "-"
    waited_ms = round(record.waited_s * 1000)
    duration_ms = round(record.duration_s * 1000)
    fields = {
        "request_id": request_id,
        "exchange_id": record.exchange_id,
        "endpoint": endpoint,
        "outcome": record.verdict.value,
        "status": record.status,
        "queue_ms": waited_ms,
        "duration_ms": duration_ms,
        "attempts": record.attempts,
    }
    tail = ""
    if record.reason is not None:
        fields["reason"] = record.reason.value
        tail = f" reason={record.reason.value}"
    if record.first_token_s is not None:
        fields["first_token_ms"] = round(record.first_token_s * 1000)
    if trace_id:
        fields["trace_id"] = trace_id
        tail += f" trace={trace_id}"
    log.info(
        "%s request=%s endpoint=%s status=%d queue_ms=%d duration_ms=%d%s",
        record.verdict.value,
        request_id,
        endpoint,
        record.status,
        waited_ms,
        duration_ms,
        tail,
        extra={"fields": fields},
    )
