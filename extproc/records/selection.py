"""Which ended requests somebody wants to see."""

import json
from dataclasses import dataclass

from extproc.core.exchange_record import ExchangeRecord
from extproc.records.request_record import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Empty texts take everything. `endpoint` is an address or a name; `outcome` is an outcome or
    the reason of a rejection."""

    client: str = ""
    model: str = ""
    endpoint: str = ""
    outcome: str = ""
    pool: str = ""

    def takes(self, record: ExchangeRecord) -> bool:
        """Whether an ended exchange is one of these."""
        reason = record.reason
        return (
            self.client in ("", record.client)
            and self.model in ("", record.model)
            and self.pool in ("", record.pool)
            and self.endpoint in ("", record.endpoint_name, str(record.endpoint))
            and self.outcome in ("", record.outcome.value, "" if reason is None else reason.value)
        )

    def takes_record(self, record: RequestRecord) -> bool:
        """The same of its record."""
        return (
            self.client in ("", record.client)
            and self.model in ("", record.model)
            and self.pool in ("", record.pool)
            and self.endpoint in ("", record.endpoint_name, record.endpoint)
            and self.outcome in ("", record.outcome, record.reason)
        )

    def may_take(self, line: bytes) -> bool:
        """Whether a line of the file may be one of these, before it is parsed."""
        wanted = (self.client, self.model, self.endpoint, self.outcome, self.pool)
        return all(mention(text) in line for text in wanted if text)


def mention(text: str) -> bytes:
    """How a line of the file has this text."""
    return json.dumps(text).encode()
