"""The last events of the fleet, for people: what changed between two comparisons, and when.

Each second the fleet is compared with what was seen a second before, so the core knows nothing of
this. What appears and ends between two comparisons is not seen; the log and the metrics have it.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Final

from extproc.core.address import Address
from extproc.core.fleet.endpoint import Endpoint, Intent
from extproc.core.observation import Issue
from extproc.core.scheduler.dispatcher import Dispatcher

MAX_EVENTS: Final = 500
MAX_LISTED: Final = 100
INTENT_TEXTS: Final = {
    Intent.ACTIVE: "gets requests again",
    Intent.DRAINING: "gets no new requests; running ones finish",
    Intent.DISABLED: "gets no new requests until it is activated",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """`id` is unique, `at` is monotonic seconds; `name` is how people know the endpoint, empty if
    it concerns none."""

    id: int
    at: float
    kind: str
    text: str
    address: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen of an endpoint."""

    name: str
    intent: Intent
    is_drained: bool
    is_removed: bool
    issues: Mapping[str, Issue]


class EventFeed:
    """Belongs to one event loop. A comparison is O(endpoints); memory is bounded."""

    def __init__(self, dispatcher: Dispatcher, bypassed: Callable[[], int]) -> None:
        """`bypassed` is the number of requests that went past the picker since the start."""
        self._dispatcher = dispatcher
        self._bypassed = bypassed
        self._events: deque[FleetEvent] = deque(maxlen=MAX_EVENTS)
        self._seen: dict[Address, _Seen] = {}
        self._last_bypassed = 0
        self._ids = count(1)

    def advance(self, now: float) -> None:
        """Compare with the last time."""
        before, self._seen = self._seen, {}
        for endpoint in self._dispatcher.fleet:
            address = endpoint.address
            seen = self._seen[address] = self._state_of(endpoint)
            last = before.pop(address, None)
            for kind, text in _changes(last, seen):
                self._add(now, kind, text, address, seen.name)
        for address, last in before.items():
            self._add(now, "left", "left the fleet", address, last.name)
        if more := self._bypassed() - self._last_bypassed:
            self._last_bypassed += more
            what = "1 request" if more == 1 else f"{more} requests"
            self._add(now, "bypassed", f"Envoy sent {what} to servers without asking the picker")

    def _add(
        self, now: float, kind: str, text: str, address: Address | None = None, name: str = ""
    ) -> None:
        place = "" if address is None else str(address)
        self._events.append(
            FleetEvent(id=next(self._ids), at=now, kind=kind, text=text, address=place, name=name)
        )

    def _state_of(self, endpoint: Endpoint) -> _Seen:
        return _Seen(
            self._dispatcher.fleet.name_of(endpoint.address),
            endpoint.intent,
            endpoint.intent is Intent.DRAINING
            and not self._dispatcher.has_leases(endpoint.address),
            endpoint.is_removed,
            {issue.code: issue for issue in endpoint.issues},
        )

    def as_json(self, now: float, endpoint: Address | None = None) -> list[dict[str, Any]]:
        """The last events, newest first, with their ages in seconds; with `endpoint`, its own."""
        place = "" if endpoint is None else str(endpoint)
        events = (each for each in reversed(self._events) if place in ("", each.address))
        return [
            {
                "id": event.id,
                "age_s": round(now - event.at, 1),
                "kind": event.kind,
                "text": event.text,
                "endpoint": event.address,
                "endpoint_name": event.name,
            }
            for event in islice(events, MAX_LISTED)
        ]


def _changes(before: _Seen | None, now: _Seen) -> Iterator[tuple[str, str]]:
    """The kinds and texts of the events between two states of one endpoint."""
    if before is None:
        yield "joined", "is in the fleet"
        before = _Seen(now.name, Intent.ACTIVE, False, False, {})
    if now.is_removed and not before.is_removed:
        yield "removed", "has no source any more and leaves when its last request has finished"
    if before.is_removed and not now.is_removed:
        yield "joined", "is in the fleet again"
    if now.intent is not before.intent:
        yield now.intent.value, INTENT_TEXTS[now.intent]
    if now.is_drained and not before.is_drained:
        yield "drained", "no request runs there any more"
    for code, issue in now.issues.items():
        if code not in before.issues:
            yield ("ejected" if code == "ejected" else "issue"), f"{code}: {issue.message}"
    for code in before.issues:
        if code not in now.issues:
            yield "ended", f"{code}: the issue has ended"
