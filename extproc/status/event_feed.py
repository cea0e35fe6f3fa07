"""The last events of the fleet and of clients, for people: what changed between two comparisons,
and when.

Each second the fleet is compared with what was seen a second before, so the core knows nothing of
this. What appears and ends between two comparisons is not seen; the log and the metrics have it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from extproc.core.address import Address
from extproc.core.budgets import Period
from extproc.core.client_limits import ClientLimits, Limited
from extproc.core.fleet.endpoint import Endpoint, Intent
from extproc.core.fleet.health import Health
from extproc.core.observation import Issue
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.records.fleet_events import FleetEvents
from extproc.settings.client_keys import ID_CHARS

MAX_LISTED: Final = 100
EJECTED: Final = "ejected"
HEALTH_EVENTS: Final = {
    Health.READY: ("ready", "serves requests"),
    Health.DEGRADED: ("ready", "serves requests"),
    Health.DOWN: ("unreachable", "cannot be reached and gets no requests"),
    Health.LOADING: ("loading", "loads its model and gets no requests"),
    Health.ASLEEP: ("asleep", "sleeps, and loads its model with the next request"),
    Health.OFF: ("off", "cannot be reached; requests that wait for it wake its machine"),
}
INTENT_TEXTS: Final = {
    Intent.ACTIVE: "gets requests again",
    Intent.DRAINING: "gets no new requests; running ones finish",
    Intent.DISABLED: "gets no new requests until it is activated",
}


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen of an endpoint."""

    name: str
    intent: Intent
    is_drained: bool
    is_removed: bool
    issues: Mapping[str, Issue]
    health: Health = Health.LOADING
    overflows: int = 0
    loaded: frozenset[str] = field(default_factory=frozenset)


class EventFeed:
    """Belongs to one event loop. A comparison is O(endpoints and their models)."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        bypassed: Callable[[], int],
        events: FleetEvents | None = None,
        *,
        rule_problems: Callable[[], Collection[str]] = tuple,
        kept: Callable[[], Collection[Address]] = tuple,
        keys: Callable[[], Mapping[str, str] | None] = lambda: None,
        limits: ClientLimits | None = None,
    ) -> None:
        """What it finds is added to `events`. `bypassed` is the number of requests that went past
        the picker since the start, `rule_problems` say which rules are off, `kept` are the servers
        whose loads others report. `keys` are the names of clients by the digests of the keys that
        open, None where keys are not checked, `limits` those of the clients."""
        self._dispatcher = dispatcher
        self._bypassed = bypassed
        self._events = FleetEvents() if events is None else events
        self._rule_problems = rule_problems
        self._kept = kept
        self._seen: dict[Address, _Seen] = {}
        self._last_bypassed = 0
        self._rules_off: set[str] = set()
        self._keys = keys
        self._last_keys: Mapping[str, str] | None = None
        self._limits = limits
        self._used_up: set[tuple[str, Period]] = set()

    def advance(self, now: float) -> None:
        """Compare with the last time."""
        before, self._seen = self._seen, {}
        kept = self._kept()
        for endpoint in self._dispatcher.fleet:
            address = endpoint.address
            seen = self._seen[address] = self._state_of(endpoint)
            last = before.pop(address, None)
            if seen == last:  # as nearly all of a large fleet
                continue
            for kind, text in _changes(last, seen):
                self._add(now, kind, text, address, seen.name)
            if last is not None and address not in kept:
                for kind, text, model in _loads(last, seen):
                    self._add(now, kind, text, address, seen.name, model)
        for address, last in before.items():
            self._add(now, "left", "left the fleet", address, last.name)
        if more := self._bypassed() - self._last_bypassed:
            self._last_bypassed += more
            what = "1 request" if more == 1 else f"{more} requests"
            self._add(now, "bypassed", f"Envoy sent {what} to servers without asking the picker")
        off = set(self._rule_problems())
        for problem in sorted(off - self._rules_off):
            self._add(now, "rule-off", problem)
        self._rules_off = off
        keys = self._keys()
        if keys is not None:
            self._compare_keys(now, keys)
            self._compare_budgets(now, set(keys.values()))

    def _compare_keys(self, now: float, keys: Mapping[str, str]) -> None:
        last = keys if self._last_keys is None else self._last_keys
        self._last_keys = keys
        if keys is last:
            return
        for digest, name in keys.items() - last.items():
            text = f"the key {digest[:ID_CHARS]} of {name} opens"
            self._events.add("key-added", text, client=name, at=now)
        for digest, name in last.items() - keys.items():
            text = f"the key {digest[:ID_CHARS]} of {name} has expired or was revoked"
            self._events.add("key-ended", text, client=name, at=now)

    def _compare_budgets(self, now: float, names: Collection[str]) -> None:
        if self._limits is None or not self._limits.has_budgets:
            return
        before, self._used_up = self._used_up, set()
        for name in sorted(names):
            exceeded = self._limits.exceeded(name, now)
            if exceeded is None or exceeded.what is not Limited.BUDGET or not exceeded.period:
                continue
            self._used_up.add((name, exceeded.period))
            if (name, exceeded.period) not in before:
                text = f"{name} has used up its budget of this {exceeded.period.value}"
                self._events.add("budget-used-up", text, client=name, at=now)

    def _add(
        self,
        now: float,
        kind: str,
        text: str,
        address: Address | None = None,
        name: str = "",
        model: str = "",
    ) -> None:
        place = "" if address is None else str(address)
        self._events.add(kind, text, address=place, name=name, model=model, at=now)

    def _state_of(self, endpoint: Endpoint) -> _Seen:
        return _Seen(
            self._dispatcher.fleet.name_of(endpoint.address),
            endpoint.intent,
            endpoint.intent is Intent.DRAINING
            and not self._dispatcher.view.has_leases(endpoint.address),
            endpoint.is_removed,
            {issue.code: issue for issue in endpoint.issues},
            endpoint.health,
            endpoint.overflows,
            frozenset(model.name for model in endpoint.models if model.is_loaded),
        )

    def as_json(self, now: float, endpoint: Address | None = None) -> list[dict[str, Any]]:
        """The last events, newest first, with their ages in seconds; with `endpoint`, its own."""
        place = "" if endpoint is None else str(endpoint)
        events = (each for each in self._events.newest_first() if place in ("", each.address))
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
    if HEALTH_EVENTS[now.health] != HEALTH_EVENTS[before.health]:
        yield HEALTH_EVENTS[now.health]
    if now.overflows > before.overflows:
        yield "overflow", "the context that its slots share was full, and requests failed there"
    for code, issue in now.issues.items():
        if code not in before.issues:
            yield (EJECTED if code == EJECTED else "issue"), f"{code}: {issue.message}"
    for code in before.issues:
        if code not in now.issues:
            if code == EJECTED:
                yield "recovered", "its ejection has ended; it is on probation"
            else:
                yield "ended", f"{code}: the issue has ended"


def _loads(before: _Seen, now: _Seen) -> Iterator[tuple[str, str, str]]:
    """The kinds, texts and models of what was loaded and unloaded between two states of a server
    that is reached."""
    if HEALTH_EVENTS[before.health][0] != "ready" or HEALTH_EVENTS[now.health][0] != "ready":
        return
    for model in sorted(now.loaded - before.loaded):
        yield "model-loaded", f"{model} is loaded", model
    for model in sorted(before.loaded - now.loaded):
        yield "model-unloaded", f"{model} is not loaded any more", model
