"""Counts records, and reads all metrics together with the current state of the core."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from extproc.core.address import Address
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.fleet.health import Health
from extproc.core.observation import Observation
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.telemetry import definitions
from extproc.telemetry.counters import Counter, Histogram
from extproc.telemetry.labels import endpoint_labels
from extproc.telemetry.reading import FamilyReading, Reading

NO_CRITICALITY: Final = "none"
"""The label value for requests that take no slot."""
_HELD_SLOT: Final = frozenset({Outcome.SERVED, Outcome.BROKEN})
MAX_STRANGERS: Final = 1000
"""Endpoints that left the fleet, and of which something is kept until somebody reads."""


class Metrics:
    """Told from the event loop, read from the event loop; neither blocks.

    `running` counts open exchanges that do not wait, `queue_depths` queued requests by criticality,
    `problems` tells what cannot be read that the settings name, `dropped` what telemetry threw
    away by signal, `audit_corrections` what the auditor corrected by kind.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        version: str,
        clock: Callable[[], float],
        running: Callable[[], int],
        queue_depths: Callable[[], Mapping[str, int]],
        problems: Callable[[], Sequence[str]],
        dropped: Callable[[], Mapping[str, int]],
        audit_corrections: Callable[[], Mapping[str, int]],
    ) -> None:
        self._dispatcher = dispatcher
        self._version = version
        self._clock = clock
        self._running = running
        self._queue_depths = queue_depths
        self._problems = problems
        self._dropped = dropped
        self._audit_corrections = audit_corrections
        self._since_ns = time.time_ns()
        self._requests = Counter()
        self._queue_wait = Histogram(definitions.QUEUE_WAIT.buckets)
        self._pick = Histogram(definitions.PICK.buckets)
        self._first_token = Histogram(definitions.TIME_TO_FIRST_TOKEN.buckets)
        self._scrapes: dict[Address, Counter] = defaultdict(Counter)

    def tell(self, record: ExchangeRecord) -> None:
        """An exchange ended."""
        if record.outcome is Outcome.PASSED:
            self._requests.add(record.outcome.value, NO_CRITICALITY)
            return
        self._requests.add(outcome(record), record.criticality or NO_CRITICALITY)
        if record.waited_s > 0 or record.outcome in _HELD_SLOT:
            self._queue_wait.observe(record.waited_s)
        if record.decided_at is not None:
            self._pick.observe(record.pick_s)
        if record.first_token_s is not None:
            self._first_token.observe(record.first_token_s)

    def scraped(self, observation: Observation) -> None:
        """Record a scrape of an endpoint."""
        if len(self._scrapes) > MAX_STRANGERS + 2 * len(self._dispatcher.fleet):
            self._forget_strangers()  # nobody reads
        self._scrapes[observation.address].add(observation.status.value)

    def outcomes(self) -> dict[str, int]:
        """How many requests ended in which way since the start, all criticalities together."""
        sums: dict[str, int] = defaultdict(int)
        for (how, _), count in self._requests.read().items():
            sums[how] += count
        return dict(sums)

    def read(self) -> Reading:
        """All metrics now. O(endpoints); what belongs to endpoints that left is forgotten."""
        return Reading(
            taken_at_ns=time.time_ns(),
            since_ns=self._since_ns,
            families=(
                *self._read_endpoints(),
                FamilyReading(
                    definitions.QUEUE_DEPTH,
                    {(criticality,): count for criticality, count in self._queue_depths().items()},
                ),
                FamilyReading(
                    definitions.QUEUE_MAX_REQUESTS,
                    {(): self._dispatcher.options.queue_max_requests},
                ),
                FamilyReading(
                    definitions.QUEUE_BODY_BYTES, {(): self._dispatcher.queue.body_bytes}
                ),
                FamilyReading(
                    definitions.QUEUE_MAX_BODY_BYTES,
                    {(): self._dispatcher.options.queue_max_body_bytes},
                ),
                FamilyReading(definitions.RUNNING, {(): self._running()}),
                FamilyReading(definitions.REQUESTS, dict(self._requests.read())),
                FamilyReading(definitions.QUEUE_WAIT, {(): self._queue_wait.read()}),
                FamilyReading(definitions.PICK, {(): self._pick.read()}),
                FamilyReading(definitions.TIME_TO_FIRST_TOKEN, {(): self._first_token.read()}),
                FamilyReading(definitions.SLO_REQUESTS, self._dispatcher.slo_totals()),
                FamilyReading(definitions.PROBLEMS, {(): len(self._problems())}),
                FamilyReading(
                    definitions.DROPPED,
                    {(signal,): count for signal, count in self._dropped().items()},
                ),
                FamilyReading(
                    definitions.AUDIT_CORRECTIONS,
                    {(kind,): count for kind, count in self._audit_corrections().items()},
                ),
                FamilyReading(definitions.BUILD, {(self._version,): 1}),
            ),
        )

    def _read_endpoints(self) -> tuple[FamilyReading, ...]:
        fleet = self._dispatcher.fleet
        now = self._clock()
        labels = endpoint_labels(fleet)
        slots: dict[tuple[str, ...], float] = defaultdict(float)
        oldest_s: dict[tuple[str, ...], float] = defaultdict(float)
        scrapes: dict[tuple[str, ...], float] = defaultdict(float)
        health: dict[tuple[str, ...], float] = {(one.value,): 0 for one in Health}
        ejected: dict[tuple[str, ...], float] = defaultdict(float)
        ejections: dict[tuple[str, ...], float] = defaultdict(float)
        self._forget_strangers()
        for endpoint in fleet:
            label = labels[endpoint.address]
            counts = self._dispatcher.slot_counts(endpoint)
            slots[label, "idle"] += counts.idle
            slots[label, "leased"] += counts.leased
            slots[label, "foreign"] += counts.foreign
            slots[label, "unusable"] += counts.unusable
            health[endpoint.health.value,] += 1
            ejected[label,] += endpoint.ejection_issue is not None
            for cause, count in self._dispatcher.ejection_totals(endpoint.address).items():
                ejections[label, cause.value] += count
            if endpoint.observed_at is not None:
                oldest_s[label,] = max(oldest_s[label,], now - endpoint.observed_at)
            if endpoint.address in self._scrapes:
                for (result,), count in self._scrapes[endpoint.address].read().items():
                    scrapes[label, result] += count
        return (
            FamilyReading(definitions.SLOTS, slots),
            FamilyReading(definitions.ENDPOINTS, health),
            FamilyReading(definitions.OBSERVATION_AGE, oldest_s),
            FamilyReading(definitions.SCRAPES, scrapes),
            FamilyReading(definitions.EJECTED, ejected),
            FamilyReading(definitions.EJECTIONS, ejections),
        )

    def _forget_strangers(self) -> None:
        fleet = self._dispatcher.fleet
        for address in [address for address in self._scrapes if address not in fleet]:
            del self._scrapes[address]


def outcome(record: ExchangeRecord) -> str:
    """How it ended, as one word: the reason where it was refused, the verdict elsewhere."""
    if record.outcome is Outcome.REJECTED and record.reason is not None:
        return record.reason.value
    return record.outcome.value
