"""Logs one line for each ended request."""

import logging

from extproc.core.constraints import FIRST_TIER
from extproc.core.exchange_record import ExchangeRecord
from extproc.telemetry.metrics import outcome

log = logging.getLogger("coxswain.request")


def is_logged() -> bool:
    """Whether requests are logged."""
    return log.isEnabledFor(logging.INFO)


def log_request(record: ExchangeRecord, trace_id: str) -> None:
    """Write one log line. It has no path, header or body of a client except the request id."""
    if is_logged():
        line = RequestLine(record, trace_id)
        log.info("%s", line, extra={"fields": line.fields})


class RequestLine:
    """What is written of one request; put into words only where it is written."""

    __slots__ = ("_record", "_trace_id")

    def __init__(self, record: ExchangeRecord, trace_id: str) -> None:
        self._record = record
        self._trace_id = trace_id

    def __str__(self) -> str:
        record = self._record
        how = outcome(record)
        why = record.reason.value if record.reason is not None else how
        reason = f" reason={why}" if why != how else ""
        client = f" client={_shown(record.client)}" if record.client else ""
        pool = f" pool={record.pool}" if record.pool else ""
        tier = f" tier={record.tier}" if record.tier != FIRST_TIER else ""
        trace = f" trace={self._trace_id}" if self._trace_id else ""
        return (
            f"{how} request={_shown(record.request_id) or record.exchange_id} "
            f"endpoint={record.endpoint_name or record.endpoint or '-'} status={record.status} "
            f"queue_ms={record.waited_s * 1000:.0f} duration_ms={record.duration_s * 1000:.0f}"
            f"{reason}{client}{pool}{tier}{trace}"
        )

    def fields(self) -> dict[str, object]:
        """The same for machines."""
        record = self._record
        fields: dict[str, object] = {
            "request_id": record.request_id or record.exchange_id,
            "exchange_id": record.exchange_id,
            "endpoint": record.endpoint_name or str(record.endpoint or "-"),
            "address": str(record.endpoint or "-"),
            "outcome": outcome(record),
            "status": record.status,
            "queue_ms": round(record.waited_s * 1000),
            "duration_ms": round(record.duration_s * 1000),
            "attempts": record.attempts,
        }
        if record.reason is not None:
            fields["reason"] = record.reason.value
        if record.client:
            fields["client"] = record.client
        if record.pool:
            fields["pool"] = record.pool
        if record.first_token_s is not None:
            fields["first_token_ms"] = round(record.first_token_s * 1000)
        if record.tier != FIRST_TIER:
            fields["tier"] = record.tier
        if self._trace_id:
            fields["trace_id"] = self._trace_id
        return fields


def _shown(text: str) -> str:
    """As it is, unless a terminal would obey it, or what follows a space in it would be taken
    for a field of ours."""
    return text if text.isprintable() and " " not in text else repr(text)
