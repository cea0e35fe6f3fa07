"""Why queued requests wait, as samples of the queue show it.

A request pays nothing for it: a timer samples those that wait, and what it saw is taken with the
record of their end. A wait that falls between two samples is not seen.
"""

from collections.abc import Callable
from itertools import islice
from time import thread_time
from typing import Final

from extproc.core.exchange_registry import ExchangeRegistry, KnownExchange
from extproc.core.queue.ticket import Ticket
from extproc.core.scheduler.dispatcher import Dispatcher

INTERVAL_S: Final = 0.25
MAX_SHARE: Final = 0.02
"""The share of the event loop's time for all samples."""
MAX_SAMPLED: Final = 1000
"""Of a longer queue only this many of the oldest are sampled."""
MAX_PLACED: Final = 20
"""New ones whose places are computed at once."""


class SampledWait:
    """What was seen of one queued request."""

    __slots__ = ("_by_reason", "_last", "_last_at", "note", "place", "place_after_s", "place_of")

    def __init__(self, entered_at: float = 0.0) -> None:
        self._by_reason: dict[str, float] = {}
        self._last = ""
        self._last_at = entered_at
        self.note = ""
        self.place: int | None = None
        self.place_of: int | None = None
        self.place_after_s: float | None = None

    def saw(self, reason: str, now: float) -> bool:
        """It waits for that reason; so it did since the last sample. Returns whether the reason is
        another one than then."""
        waited_s = max(0.0, now - self._last_at)
        self._by_reason[reason] = self._by_reason.get(reason, 0.0) + waited_s
        is_new = reason != self._last
        self._last, self._last_at = reason, now
        return is_new

    def reasons(self, waited_s: float) -> dict[str, float] | None:
        """The seconds by reason, of a wait of `waited_s`: what no sample saw is added to the last
        reason. None if nothing was seen."""
        if not self._by_reason:
            return None
        found = dict(self._by_reason)
        rest_s = waited_s - sum(found.values())
        found[self._last] = max(0.0, found[self._last] + rest_s)
        return {reason: round(seconds, 3) for reason, seconds in found.items()}


NOT_SAMPLED: Final = SampledWait()


class WaitSamples:
    """Belongs to one event loop. Its memory is bounded by `MAX_SAMPLED`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        registry: ExchangeRegistry,
        work_time: Callable[[], float] = thread_time,
    ) -> None:
        """`work_time` measures what a sample costs, in seconds."""
        self._dispatcher = dispatcher
        self._registry = registry
        self._work_time = work_time
        self._waits: dict[str, SampledWait] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def get(self, exchange_id: str) -> SampledWait | None:
        """What was seen of a request until now."""
        return self._waits.get(exchange_id)

    def take(self, exchange_id: str) -> SampledWait | None:
        """What was seen of a request that has ended. O(1)."""
        return self._waits.pop(exchange_id, None)

    def sample(self, now: float) -> float:
        """Sample the queue; returns after how many seconds to do so again. O(exchanges)."""
        began = self._work_time()
        if len(self._dispatcher.queue):
            self._sample_queue(now)
        return max(INTERVAL_S, (self._work_time() - began) / MAX_SHARE)

    def _sample_queue(self, now: float) -> None:
        if len(self._waits) >= 2 * MAX_SAMPLED:
            kept = {id_: one for id_, one in self._waits.items() if self._registry.get(id_)}
            self._waits = kept
        waiting = islice(filter(_is_queued, self._registry), MAX_SAMPLED)
        view = self._dispatcher.view
        waits = view.waits()
        new: list[tuple[SampledWait, Ticket]] = []
        for exchange in waiting:
            ticket = exchange.ticket
            assert ticket is not None
            wait = self._waits.get(exchange.id)
            if wait is None:
                if len(self._waits) >= 2 * MAX_SAMPLED:
                    continue  # most of them run by now
                wait = self._waits[exchange.id] = SampledWait(ticket.entered_at)
                if len(new) < MAX_PLACED:
                    new.append((wait, ticket))
            if wait.saw(waits.reason_of(ticket).value, now):
                note = view.note_of(ticket, now)
                wait.note = note or wait.note
        positions = view.positions_of([ticket for _, ticket in new], now)
        for (wait, ticket), position in zip(new, positions, strict=True):
            wait.place, wait.place_of = position.position, position.queued
            wait.place_after_s = max(0.0, now - ticket.entered_at)


def _is_queued(exchange: KnownExchange) -> bool:
    return exchange.ticket is not None and exchange.ticket.is_waiting
