"""The last ended requests, in memory."""

from collections import deque
from collections.abc import Iterator

from extproc.core.exchange_record import ExchangeRecord
from extproc.records.wait_samples import SampledWait

MAX_CHARS = 256
"""What a client wrote is kept up to this length."""


class RecordRing:
    """Belongs to one event loop. `add` is O(1); its memory is about 2 KB for each request."""

    def __init__(self, size: int) -> None:
        """Of more than `size` ended requests the oldest are forgotten."""
        self._records: deque[tuple[ExchangeRecord, SampledWait | None]] = deque(maxlen=size)
        self.total = 0
        """How many have ended since the start; the number of the newest."""

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_whole(self) -> bool:
        """Whether every request that ended since the start is here."""
        return self.total == len(self._records)

    @property
    def oldest(self) -> ExchangeRecord | None:
        """The one that ended first of those that are here."""
        return self._records[0][0] if self._records else None

    def add(self, record: ExchangeRecord, wait: SampledWait | None) -> None:
        """A request ended; nobody else needs its texts in their full length."""
        if len(record.path) > MAX_CHARS:
            record.path = record.path[:MAX_CHARS]
        if len(record.request_id) > MAX_CHARS:
            record.request_id = record.request_id[:MAX_CHARS]
        if len(record.model) > MAX_CHARS:
            record.model = record.model[:MAX_CHARS]
        record.trace_parent = ""
        self._records.append((record, wait))
        self.total += 1

    def newest_first(self) -> Iterator[tuple[int, ExchangeRecord, SampledWait | None]]:
        """All of them with their numbers: the first that ended since the start has 1."""
        number = self.total
        for record, wait in reversed(self._records):
            yield number, record, wait
            number -= 1
