"""Counts records, and reads all metrics together with the current state of the core."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from extproc.core.address import Address
from extproc.core.constraints import NO_POOL
from extproc.core.exchange_record import ExchangeRecord, Outcome
from extproc.core.fleet.health import Health
from extproc.core.observation import Observation
from extproc.core.processes import Processes
from extproc.core.scheduler.dispatcher import Dispatcher
from extproc.telemetry import definitions
from extproc.telemetry.counters import Counter, Distribution, Histogram
from extproc.telemetry.definitions import Family
from extproc.telemetry.endpoint_counts import (
    HELD_SLOT,
    MAX_REMOVED,
    EndpointCounts,
    endpoint_labels,
)
from extproc.telemetry.reading import (
    Reading,
    Values,
    by_label,
    read_bounds,
    read_models,
    read_models_by_pool,
    read_processes,
    read_usage,
)
from extproc.usage.counts import UsageCounts, UsageKey

NO_CRITICALITY: Final = "none"
"""The label value for requests that take no slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySources:
    """What is read when somebody asks; every call is synchronous and short.

    `running` counts open exchanges that do not wait, `queue_depths` queued requests by criticality;
    `problems` are the sources in the settings that cannot be read, `dropped_log_lines` counts the
    lines that a slow stderr could not take, `audit_corrections` the auditor's corrections by kind,
    `bypassed` the requests that Envoy sent past this picker. `loop_lag` is how late the event loop
    was, in seconds; `envoy_failures` are Envoys' own counters, by address and kind. The models of
    machines with a keeper are by machine and model; `model_changes` by the change, too.
    Machines that sleep are by name; `machine_changes` by the change, too.
    `usage` are the sums of usage since the start, None where it is not counted; `processes` are
    those of `fronts`, None without. `rule_states` are 1 for each of the operators' rules that is
    on, `rule_faults` count by rule and kind.
    """

    running: Callable[[], int]
    queue_depths: Callable[[], Mapping[str, int]]
    problems: Callable[[], Sequence[str]] = lambda: ()
    dropped_log_lines: Callable[[], int] = lambda: 0
    audit_corrections: Callable[[], Mapping[str, int]] = dict
    bypassed: Callable[[], int] = lambda: 0
    loop_lag: Callable[[], Distribution] = Histogram(definitions.EVENT_LOOP_LAG.buckets).read
    envoy_failures: Callable[[], Values] = dict
    usage: Callable[[], Mapping[UsageKey, UsageCounts]] | None = None
    models_loaded: Callable[[], Values] = dict
    model_loads_s: Callable[[], Values] = dict
    model_changes: Callable[[], Values] = dict
    machine_changes: Callable[[], Values] = dict
    machine_wakes_s: Callable[[], Values] = dict
    processes: Callable[[], Processes] | None = None
    rule_states: Callable[[], Values] = dict
    rule_faults: Callable[[], Values] = dict


class Metrics:
    """Recorded and read in the event loop; neither blocks.

    `dropped` is what telemetry dropped, by signal.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sources: TelemetrySources,
        *,
        version: str,
        clock: Callable[[], float],
        dropped: Callable[[], Mapping[str, int]],
    ) -> None:
        self._dispatcher = dispatcher
        self._sources = sources
        self._version = version
        self._clock = clock
        self._dropped = dropped
        self._since_ns = time.time_ns()
        self._requests = Counter()
        self._queue_wait = Histogram(definitions.QUEUE_WAIT.buckets)
        self._pick = Histogram(definitions.PICK.buckets)
        self._first_token = Histogram(definitions.TIME_TO_FIRST_TOKEN.buckets)
        self._endpoint_counts = EndpointCounts(dispatcher.fleet)
        self._scrapes: dict[Address, Counter] = defaultdict(Counter)

    def record(self, record: ExchangeRecord) -> None:
        """An exchange ended."""
        if record.outcome is Outcome.PASSED:
            self._requests.add(record.outcome.value, NO_CRITICALITY, record.pool)
            return
        self._requests.add(outcome(record), record.criticality or NO_CRITICALITY, record.pool)
        if record.waited_s > 0 or record.outcome in HELD_SLOT:
            self._queue_wait.observe(record.waited_s)
        if record.decided_at is not None:
            self._pick.observe(record.pick_s)
        if record.first_token_s is not None:
            self._first_token.observe(record.first_token_s)
        self._endpoint_counts.record(record)

    def as_plain(self) -> tuple[Any, ...]:
        """The fleet's counters, for `restore`."""
        return (
            [(labels, count) for labels, count in self._requests.read().items()],
            [each.as_plain() for each in self._histograms()],
        )

    def restore(self, plain: tuple[Any, ...]) -> None:
        """Go on from the counters of another process. Raises `ValueError` or `TypeError` for what
        is not from `as_plain`."""
        requests, histograms = plain
        for labels, count in requests:
            how, criticality, *pool = labels  # another version counts by no pool
            self._requests.add(how, criticality, *(pool or [NO_POOL]), count=count)
        for histogram, counts in zip(self._histograms(), histograms, strict=True):
            histogram.add_plain(counts)

    def _histograms(self) -> tuple[Histogram, ...]:
        return (self._queue_wait, self._pick, self._first_token)

    def scraped(self, observation: Observation) -> None:
        """Record a scrape of an endpoint."""
        if len(self._scrapes) > MAX_REMOVED + 2 * len(self._dispatcher.fleet):
            self._forget_removed()  # nobody reads
        self._scrapes[observation.address].add(observation.status.value)
        self._endpoint_counts.scraped(observation)

    def generated_tokens(self) -> int | None:
        """Tokens that scrapes showed since the start; None if no server reports them."""
        return self._endpoint_counts.generated_tokens

    def outcomes(self) -> dict[str, int]:
        """How many requests ended in which way since the start, all criticalities together."""
        sums: dict[str, int] = defaultdict(int)
        for (how, *_), count in self._requests.read().items():
            sums[how] += count
        return dict(sums)

    def read(self) -> Reading:
        """All metrics now. O(endpoints); what belongs to endpoints that left is forgotten."""
        dispatcher, sources = self._dispatcher, self._sources
        return Reading(
            taken_at_ns=time.time_ns(),
            since_ns=self._since_ns,
            families={
                **self._read_endpoints(),
                **self._read_pools(),
                **read_bounds(dispatcher.view.bounds),
                definitions.QUEUE_BODY_BYTES: {(): dispatcher.queue.body_bytes},
                definitions.QUEUE_MAX_BODY_BYTES: {(): dispatcher.options.queue.max_body_bytes},
                definitions.RUNNING: {(): sources.running()},
                definitions.QUEUE_WAIT: {(): self._queue_wait.read()},
                definitions.PICK: {(): self._pick.read()},
                definitions.TIME_TO_FIRST_TOKEN: {(): self._first_token.read()},
                definitions.SLO_REQUESTS: dispatcher.view.slo_totals(),
                definitions.SIZE_ERROR: dispatcher.view.size_errors(),
                definitions.PROBLEMS: {(): len(sources.problems())},
                definitions.DROPPED: by_label(self._dropped()),
                definitions.AUDIT_CORRECTIONS: by_label(sources.audit_corrections()),
                definitions.BYPASSED: {(): sources.bypassed()},
                definitions.RULES: sources.rule_states(),
                definitions.RULE_FAULTS: sources.rule_faults(),
                definitions.EVENT_LOOP_LAG: {(): sources.loop_lag()},
                definitions.ENVOY_FAILURES: sources.envoy_failures(),
                definitions.MODEL_LOADED: sources.models_loaded(),
                definitions.MODEL_LOAD_SECONDS: sources.model_loads_s(),
                definitions.MODEL_CHANGES: sources.model_changes(),
                definitions.MACHINE_CHANGES: sources.machine_changes(),
                definitions.MACHINE_WAKE_SECONDS: sources.machine_wakes_s(),
                definitions.BUILD: {(self._version,): 1},
                **({} if sources.usage is None else read_usage(sources.usage())),
                **({} if sources.processes is None else read_processes(sources.processes())),
            },
        )

    def _read_pools(self) -> dict[Family, Values]:
        """What has the label `pool` where there are several, and not otherwise."""
        view = self._dispatcher.view
        queues, scale = view.waits().by_pool(), view.scale(self._clock()).values()
        requests = self._requests.read()
        if len(view.pools) > 1:
            return {
                definitions.QUEUE_DEPTH.by_pool(): view.queue_depths(),
                definitions.QUEUE_MAX_REQUESTS.by_pool(): dict.fromkeys(
                    ((pool,) for pool in view.pools), view.options.queue.max_requests
                ),
                **read_models_by_pool(queues),
                definitions.MODEL_WANTED_SERVERS.by_pool(): {
                    (one.model, one.pool): one.wanted for one in scale
                },
                definitions.REQUESTS.by_pool(): requests,
            }
        sums: dict[tuple[str, ...], float] = defaultdict(int)
        for (how, criticality, _), count in requests.items():
            sums[how, criticality] += count
        return {
            definitions.QUEUE_DEPTH: by_label(self._sources.queue_depths()),
            definitions.QUEUE_MAX_REQUESTS: {(): view.options.queue.max_requests},
            **read_models({model: queue for (_, model), queue in queues.items()}),
            definitions.MODEL_WANTED_SERVERS: {(one.model,): one.wanted for one in scale},
            definitions.REQUESTS: sums,
        }

    def _read_endpoints(self) -> dict[Family, Values]:
        fleet = self._dispatcher.fleet
        now = self._clock()
        labels = endpoint_labels(fleet)
        slots: dict[tuple[str, ...], float] = defaultdict(float)
        contexts: dict[tuple[str, ...], float] = defaultdict(float)
        overflows: dict[tuple[str, ...], float] = defaultdict(float)
        oldest_s: dict[tuple[str, ...], float] = defaultdict(float)
        scrapes: dict[tuple[str, ...], float] = defaultdict(float)
        health: dict[tuple[str, ...], float] = {(one.value,): 0 for one in Health}
        ejected: dict[tuple[str, ...], float] = defaultdict(float)
        ejections: dict[tuple[str, ...], float] = defaultdict(float)
        has_pools = len(self._dispatcher.view.pools) > 1
        self._forget_removed()
        for endpoint in fleet:
            label = labels[endpoint.address]
            counts = self._dispatcher.view.slot_counts(endpoint)
            pool = (endpoint.spec.pool,) if has_pools else ()
            slots[label, "idle", *pool] += counts.idle
            slots[label, "leased", *pool] += counts.leased
            slots[label, "foreign", *pool] += counts.foreign
            slots[label, "unusable", *pool] += counts.unusable
            tokens = self._dispatcher.view.token_counts(endpoint)
            if tokens is not None:
                overflows[label,] += endpoint.overflows
                for state in ("held", "reserved", "free", "total"):
                    contexts[label, state] += getattr(tokens, state)
            health[endpoint.health.value,] += 1
            ejected[label,] += endpoint.ejection_issue is not None
            for cause, count in self._dispatcher.view.ejection_totals(endpoint.address).items():
                ejections[label, cause.value] += count
            if endpoint.observed_at is not None:
                oldest_s[label,] = max(oldest_s[label,], now - endpoint.observed_at)
            if endpoint.address in self._scrapes:
                for (result,), count in self._scrapes[endpoint.address].read().items():
                    scrapes[label, result] += count
        return {
            definitions.SLOTS.by_pool() if has_pools else definitions.SLOTS: slots,
            definitions.CONTEXT_TOKENS: contexts,
            definitions.CONTEXT_OVERFLOWS: overflows,
            definitions.ENDPOINTS: health,
            definitions.OBSERVATION_AGE: oldest_s,
            definitions.SCRAPES: scrapes,
            definitions.EJECTED: ejected,
            definitions.EJECTIONS: ejections,
            **self._endpoint_counts.read(labels),
        }

    def _forget_removed(self) -> None:
        fleet = self._dispatcher.fleet
        for address in [address for address in self._scrapes if address not in fleet]:
            del self._scrapes[address]


def outcome(record: ExchangeRecord) -> str:
    """How it ended, as one word: the reason if it was rejected, otherwise the outcome."""
    if record.outcome is Outcome.REJECTED and record.reason is not None:
        return record.reason.value
    return record.outcome.value
