"""What `/activity` shows: requests, the last ten minutes, and what happened. All of it is bounded.

It is kept here and not in the page, so that a page that is opened now shows it, too.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from extproc.app.paced import PacedWork
from extproc.core.address import Address
from extproc.core.client_limits import ClientLimits
from extproc.core.exchange_record import ExchangeRecord
from extproc.core.exchange_registry import ExchangeRegistry
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.records.fleet_events import FleetEvents
from extproc.status.event_feed import EventFeed
from extproc.status.history import History
from extproc.status.requests_json import requests_json, takes_slot

INTERVAL_S: Final = 1.0
MAX_ENDED: Final = 500
"""More than a page lists, so that each endpoint's page has some."""
NO_REQUESTS: Final[dict[str, Any]] = {"running": [], "queued": [], "ended": []}

log = logging.getLogger("coxswain.service")


class Activity:
    """Belongs to one event loop. `request_ended` costs a microsecond."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        registry: ExchangeRegistry,
        clock: Callable[[], float],
        *,
        generated_tokens: Callable[[], int | None],
        bypassed: Callable[[], int],
        events: FleetEvents | None = None,
        rule_problems: Callable[[], Collection[str]] = tuple,
        kept: Callable[[], Collection[Address]] = tuple,
        keys: Callable[[], Mapping[str, str] | None] = lambda: None,
        limits: ClientLimits | None = None,
    ) -> None:
        """`clock` is the core's; `generated_tokens` and `bypassed` are numbers since the start, and
        the rest is for `EventFeed`."""
        self._dispatcher = dispatcher
        self._registry = registry
        self._clock = clock
        self._ended: deque[ExchangeRecord] = deque(maxlen=MAX_ENDED)
        self._history = History(dispatcher, registry, generated_tokens)
        self._feed = EventFeed(
            dispatcher,
            bypassed,
            events,
            rule_problems=rule_problems,
            kept=kept,
            keys=keys,
            limits=limits,
        )
        self._recording = PacedWork("recording for the dashboard", self.advance, INTERVAL_S, log)

    def start(self) -> None:
        """Record once a second from now on, and less often where that takes much of a core."""
        self._recording.start()

    def stop(self) -> None:
        """Stop recording; calling it twice is no error."""
        self._recording.stop()

    def request_ended(self, record: ExchangeRecord) -> None:
        """An exchange ended."""
        if takes_slot(record):
            self._ended.appendleft(record)
            self._history.request_ended(record)

    def advance(self) -> None:
        """Record what is now."""
        now = self._clock()
        self._history.advance(now)
        self._feed.advance(now)

    def as_json(self, endpoint: str = "") -> dict[str, Any]:
        """Everything, or, for the address or the unique name of an endpoint, what concerns it."""
        now = self._clock()
        address = self._find(endpoint)
        if endpoint and address is None:
            return {"requests": NO_REQUESTS, "history": self._history.as_json(now), "events": []}
        tree: dict[str, Any] = {
            "requests": requests_json(self._dispatcher, self._registry, self._ended, now, address),
            "history": self._history.as_json(now),
            "events": self._feed.as_json(now, address),
        }
        if address is not None:
            tree["learned"] = learned_json(self._dispatcher, address, now)
        return tree

    def _find(self, text: str) -> Address | None:
        fleet = self._dispatcher.fleet
        for endpoint in fleet:
            if text in (str(endpoint.address), fleet.name_of(endpoint.address)):
                return endpoint.address
        return None


def learned_json(dispatcher: Dispatcher, address: Address, now: float) -> dict[str, Any]:
    """The latency model of a member of the fleet, and its ejections since the start by cause.

    `prompt_tokens_per_s` is for uncached tokens, `tokens_per_s` for one request while the slots are
    as busy as now; `samples` is a decayed number: with few, the fleet's typical endpoint counts.
    """
    estimate, samples = dispatcher.view.latency_at(address, now)
    slots = dispatcher.view.slots_at(address)
    busy = slots.leased_slots + slots.foreign_slots
    return {
        "endpoint": str(address),
        "samples": round(samples, 1),
        "fixed_s": round(estimate.fixed_s, 3),
        "prompt_tokens_per_s": _rate(estimate.prefill_s),
        "tokens_per_s": _rate(estimate.token_s(max(1, busy))),
        "answer_tokens": round(estimate.answer_tokens, 1),
        "slot_s": round(estimate.slot_s, 3),
        "ejections": {
            fault.value: count for fault, count in dispatcher.view.ejection_totals(address).items()
        },
    }


def _rate(seconds: float) -> float | None:
    """How many in a second; None for no time at all."""
    return round(1 / seconds, 1) if seconds > 0 else None
