"""Every metric there is: its name, kind, labels and meaning. docs/metrics.md is held to this."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric. `buckets` are the upper bounds of a histogram's buckets, in its unit."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()


_WAITS_S: Final = (
    *(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
_PICKS_S: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.1),
)

SLOTS: Final = Family(
    name="coxswain_slots",
    kind=Kind.GAUGE,
    help="Slots of an endpoint by state: idle (can be had now), leased (used through Coxswain), "
    "foreign (used past it) or unusable (free, but its server gets no requests).",
    labels=("endpoint", "state"),
)
ENDPOINTS: Final = Family(
    name="coxswain_endpoints",
    kind=Kind.GAUGE,
    help="Endpoints by health: loading, ready, degraded, down or asleep.",
    labels=("health",),
)
OBSERVATION_AGE: Final = Family(
    name="coxswain_observation_age_seconds",
    kind=Kind.GAUGE,
    help="Seconds since the slots of an endpoint were last seen; absent before the first look.",
    labels=("endpoint",),
    unit="s",
)
QUEUE_DEPTH: Final = Family(
    name="coxswain_queue_depth",
    kind=Kind.GAUGE,
    help="Requests that wait for a slot, by class.",
    labels=("class",),
)
QUEUE_LIMIT: Final = Family(
    name="coxswain_queue_limit",
    kind=Kind.GAUGE,
    help="How many requests may wait at most.",
)
QUEUE_BODY_BYTES: Final = Family(
    name="coxswain_queue_body_bytes",
    kind=Kind.GAUGE,
    help="How much of the bodies of waiting requests is kept, by Envoy or, in full duplex, by "
    "Coxswain.",
    unit="By",
)
QUEUE_BODY_LIMIT: Final = Family(
    name="coxswain_queue_body_limit_bytes",
    kind=Kind.GAUGE,
    help="How much of the bodies of waiting requests may be kept at most.",
    unit="By",
)
RUNNING: Final = Family(
    name="coxswain_running_exchanges",
    kind=Kind.GAUGE,
    help="Requests that Envoy has open and that do not wait: served, or passed on.",
)
REQUESTS: Final = Family(
    name="coxswain_requests_total",
    kind=Kind.COUNTER,
    help="Ended requests by outcome: served, passed (took no slot), withdrawn (its client left "
    "the queue), broken (broke off after it had a slot), or the reason of a refusal.",
    labels=("outcome", "class"),
)
QUEUE_WAIT: Final = Family(
    name="coxswain_queue_wait_seconds",
    kind=Kind.HISTOGRAM,
    help="How long requests waited for a slot, also in vain; 0 when one was free at once. Who is "
    "refused at once does not count.",
    unit="s",
    buckets=_WAITS_S,
)
PICK: Final = Family(
    name="coxswain_pick_seconds",
    kind=Kind.HISTOGRAM,
    help="How long it took to decide on a request when it came, waiting not counted.",
    unit="s",
    buckets=_PICKS_S,
)
TIME_TO_FIRST_TOKEN: Final = Family(
    name="coxswain_time_to_first_token_seconds",
    kind=Kind.HISTOGRAM,
    help="From a request's arrival, its wait included, to its first token: the end of an ordinary "
    "answer; of a stream its headers or, where these come sooner than tokens, what looks at the "
    "server and its end tell (docs/decisions/0051-when-a-promise-is-judged.md).",
    unit="s",
    buckets=_WAITS_S,
)
PROMISES: Final = Family(
    name="coxswain_promises_total",
    kind=Kind.COUNTER,
    help="Requests of an objective with an slo by what became of its promise: kept or broken.",
    labels=("objective", "result"),
)
SCRAPES: Final = Family(
    name="coxswain_scrapes_total",
    kind=Kind.COUNTER,
    help="Looks at an endpoint by result: ready, loading, asleep, unreachable or failed.",
    labels=("endpoint", "result"),
)
EJECTED: Final = Family(
    name="coxswain_endpoint_ejected",
    kind=Kind.GAUGE,
    help="Whether an endpoint is ejected for failing requests (1), a trial request of it included.",
    labels=("endpoint",),
)
EJECTIONS: Final = Family(
    name="coxswain_endpoint_ejections_total",
    kind=Kind.COUNTER,
    help="Ejections of an endpoint by the failure that caused them, failed trial requests "
    "included: 5xx, reset, timeout, broken-answer or unavailable.",
    labels=("endpoint", "cause"),
)
PROBLEMS: Final = Family(
    name="coxswain_problems",
    kind=Kind.GAUGE,
    help="What the settings name and nobody can read now: an endpoints file, DNS names, servers' "
    "keys. `/status` tells each in words.",
)
DROPPED: Final = Family(
    name="coxswain_telemetry_dropped_total",
    kind=Kind.COUNTER,
    help="What was thrown away because its receiver was slow or down: spans, metrics, log_lines.",
    labels=("signal",),
)
AUDIT_CORRECTIONS: Final = Family(
    name="coxswain_audit_corrections_total",
    kind=Kind.COUNTER,
    help="Faults that the auditor corrected, by kind: a lease or a ticket that belonged to no "
    "request, a stream that had lost its own, or books that did not fit. Each is a bug: report it.",
    labels=("kind",),
)
BUILD: Final = Family(
    name="coxswain_build_info",
    kind=Kind.GAUGE,
    help="Always 1; the label tells the version.",
    labels=("version",),
)

FAMILIES: Final = (
    *(SLOTS, ENDPOINTS, OBSERVATION_AGE, QUEUE_DEPTH, QUEUE_LIMIT),
    *(QUEUE_BODY_BYTES, QUEUE_BODY_LIMIT, RUNNING, REQUESTS),
    *(QUEUE_WAIT, PICK, TIME_TO_FIRST_TOKEN, PROMISES, SCRAPES, EJECTED, EJECTIONS),
    *(PROBLEMS, DROPPED, AUDIT_CORRECTIONS, BUILD),
)
