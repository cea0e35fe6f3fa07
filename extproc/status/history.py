"""The last ten minutes as samples, so that a page that is opened now can draw them.

Leased slots and queued requests are means over the interval before a sample
(`extproc.status.occupancy`), so short requests count, too.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.status.occupancy import Occupancy

INTERVAL_S: Final = 5.0
HISTORY_S: Final = 600.0
MAX_SAMPLES: Final = int(HISTORY_S / INTERVAL_S)
MAX_FIRST_TOKENS: Final = 1000
"""Of one interval; of further requests the last ones count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The fleet at one moment (monotonic seconds), and what happened since the sample before.

    `total` and `foreign` are slots at that moment; `leased` slots and `queued` requests are means.
    `tokens_per_s` is the rate of generated tokens, None if no server reports its tokens or at the
    first sample. `first_token_s` is the median time to first token of the requests that ended,
    their time in the queue included, None if there was none.
    """

    at: float
    total: int
    leased: float
    foreign: int
    queued: float
    tokens_per_s: float | None
    first_token_s: float | None


class History:
    """Belongs to one event loop. Its memory is bounded; a sample is O(endpoints + exchanges)."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        registry: ExchangeRegistry,
        generated_tokens: Callable[[], int | None],
    ) -> None:
        """`generated_tokens` gives the number since the start, None if no server reports it."""
        self._dispatcher = dispatcher
        self._occupancy = Occupancy(registry)
        self._generated_tokens = generated_tokens
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._first_tokens: deque[float] = deque(maxlen=MAX_FIRST_TOKENS)
        self._last_tokens: int | None = None

    def request_ended(self, record: ExchangeRecord) -> None:
        """A request ended."""
        self._occupancy.request_ended(record)
        if record.first_token_s is not None:
            self._first_tokens.append(record.first_token_s)

    def advance(self, now: float) -> None:
        """Take a sample if one is due."""
        if self._samples and now - self._samples[-1].at < INTERVAL_S:
            return
        counts = [self._dispatcher.view.slot_counts(one) for one in self._dispatcher.fleet]
        leased, queued = self._occupancy.take(now)
        self._samples.append(
            Sample(
                at=now,
                total=sum(slots.total for slots in counts),
                leased=leased,
                foreign=sum(slots.foreign for slots in counts),
                queued=queued,
                tokens_per_s=self._tokens_per_s(now),
                first_token_s=median(self._first_tokens) if self._first_tokens else None,
            )
        )
        self._first_tokens.clear()

    def _tokens_per_s(self, now: float) -> float | None:
        before, self._last_tokens = self._last_tokens, self._generated_tokens()
        if before is None or self._last_tokens is None or not self._samples:
            return None
        return (self._last_tokens - before) / (now - self._samples[-1].at)

    def as_json(self, now: float) -> dict[str, Any]:
        """The samples as columns, oldest first, with their ages in seconds."""
        samples = [one for one in self._samples if now - one.at <= HISTORY_S]
        return {
            "length_s": HISTORY_S,
            "interval_s": INTERVAL_S,
            "age_s": [round(now - one.at, 1) for one in samples],
            "total": [one.total for one in samples],
            "leased": [_rounded(one.leased) for one in samples],
            "foreign": [one.foreign for one in samples],
            "queued": [_rounded(one.queued) for one in samples],
            "tokens_per_s": [_rounded(one.tokens_per_s) for one in samples],
            "first_token_s": [_rounded(one.first_token_s) for one in samples],
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
