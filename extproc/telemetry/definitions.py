"""All metrics: name, kind, labels and meaning. A test compares docs/metrics.md with this."""

from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final


class Kind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `buckets` are the upper bounds of a histogram's buckets, in its unit."""

    kind: Kind
    name: str
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()

    def by_pool(self) -> "Family":
        """The same with the label `pool` behind the others, where there are several pools."""
        return replace(self, labels=(*self.labels, POOL))


POOL: Final = "pool"
_gauge = partial(Family, Kind.GAUGE)
_counter = partial(Family, Kind.COUNTER)
_histogram = partial(Family, Kind.HISTOGRAM)

_WAITS_S: Final = (
    *(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(20.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
_LAGS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PICKS_S: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.1),
)

SLOTS: Final = _gauge(
    "coxswain_slots",
    "Slots of an endpoint by state: idle (available now), leased (used through Coxswain),"
    " foreign (used by requests that bypass it) or unusable (the server gets no requests;"
    " also what was foreign or draining there).",
    labels=("endpoint", "state"),
)
CONTEXT_TOKENS: Final = _gauge(
    "coxswain_context_tokens",
    "Tokens of the context that the slots of an endpoint share, by state: held, reserved "
    "(at the likely peak of what is held), free or total. Absent where each slot has its "
    "own context.",
    labels=("endpoint", "state"),
)
CONTEXT_OVERFLOWS: Final = _counter(
    "coxswain_context_overflows_total",
    "How often an endpoint ended all of its requests because its shared context was full.",
    labels=("endpoint",),
)
ENDPOINTS: Final = _gauge(
    "coxswain_endpoints",
    "Endpoints by health: loading, ready, degraded, down, asleep or off, which includes those "
    "whose machine is being woken.",
    labels=("health",),
)
OBSERVATION_AGE: Final = _gauge(
    "coxswain_observation_age_seconds",
    "Seconds since the last observation of an endpoint's slots; absent before the first scrape.",
    labels=("endpoint",),
    unit="s",
)
QUEUE_DEPTH: Final = _gauge(
    "coxswain_queue_depth", "Queued requests by criticality.", labels=("criticality",)
)
MODEL_QUEUE_DEPTH: Final = _gauge(
    "coxswain_model_queue_depth",
    "Queued requests by model and by the reason why they wait (docs/operations.md). "
    "`no-idle-slot` of each served model is always there. The model is empty for requests"
    " that name none, or none that is served.",
    labels=("model", "reason"),
)
MODEL_IDLE_SLOTS: Final = _gauge(
    "coxswain_model_idle_slots",
    "Slots that a request for a model can have now, unless they are reserved. A model "
    "that a router can load has one there.",
    labels=("model",),
)
MODEL_WANTED_SERVERS: Final = _gauge(
    "coxswain_model_wanted_servers",
    "The number of servers that a model needs (docs/scaling.md). The model is empty for "
    "requests that name none of several.",
    labels=("model",),
)
QUEUE_MAX_REQUESTS: Final = _gauge(
    "coxswain_queue_max_requests", "The highest number of queued requests."
)
QUEUE_BODY_BYTES: Final = _gauge(
    "coxswain_queue_body_bytes",
    "Buffered body bytes of queued requests, in Envoy or, in full duplex, in Coxswain.",
    unit="By",
)
QUEUE_MAX_BODY_BYTES: Final = _gauge(
    "coxswain_queue_max_body_bytes",
    "The highest number of buffered body bytes of queued requests.",
    unit="By",
)
RUNNING: Final = _gauge(
    "coxswain_running_exchanges",
    "Open requests that are not queued: being served, or passed through.",
)
REQUESTS: Final = _counter(
    "coxswain_requests_total",
    "Ended requests by outcome: served, passed (took no slot), withdrawn (its client left "
    "before it got to a server), broken (cut off after it had a slot), or the reason of a "
    "rejection.",
    labels=("outcome", "criticality"),
)
QUEUE_WAIT: Final = _histogram(
    "coxswain_queue_wait_seconds",
    "Time in the queue, also of requests that got no slot; 0 if a slot was free at once. "
    "Requests that are rejected at once do not count.",
    unit="s",
    buckets=_WAITS_S,
)
PICK: Final = _histogram(
    "coxswain_pick_seconds",
    "Time to decide about an arriving request, without its time in the queue.",
    unit="s",
    buckets=_PICKS_S,
)
TIME_TO_FIRST_TOKEN: Final = _histogram(
    "coxswain_time_to_first_token_seconds",
    "Time from arrival to the first token, with the time in the queue (docs/metrics.md).",
    unit="s",
    buckets=_WAITS_S,
)
SIZE_ERROR: Final = _gauge(
    "coxswain_size_estimate_error_ratio",
    "The factor by which expected slot-seconds differ from those that requests took; 1 is"
    " exact. `quantile` is 0.5 or 0.9. Only with `queue.discipline: shortest_expected`.",
    labels=("model", "quantile"),
)
SLO_REQUESTS: Final = _counter(
    "coxswain_slo_requests_total",
    "Requests of an objective with an SLO by result: met or missed.",
    labels=("objective", "result"),
)
SCRAPES: Final = _counter(
    "coxswain_scrapes_total",
    "Scrapes of an endpoint by result: ready, loading, asleep, unreachable or failed.",
    labels=("endpoint", "result"),
)
EJECTED: Final = _gauge(
    "coxswain_endpoint_ejected",
    "1 while an endpoint is ejected for failing requests, including during a trial "
    "request; else 0.",
    labels=("endpoint",),
)
EJECTIONS: Final = _counter(
    "coxswain_endpoint_ejections_total",
    "Ejections of an endpoint by their cause, including failed trial requests: 5xx, reset, "
    "timeout, broken-answer or unavailable.",
    labels=("endpoint", "cause"),
)
ENDPOINT_REQUESTS: Final = _counter(
    "coxswain_endpoint_requests_total",
    "Ended requests that had a slot, by endpoint, model and result: ok, client_error (4xx), "
    "server_error (5xx) or broken (cut off).",
    labels=("endpoint", "model", "result"),
)
ENDPOINT_FIRST_TOKEN: Final = _histogram(
    "coxswain_endpoint_time_to_first_token_seconds",
    "Time from the end of the queue to the first token, by endpoint and model.",
    labels=("endpoint", "model"),
    unit="s",
    buckets=(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
ENDPOINT_PROMPT_TOKENS: Final = _counter(
    "coxswain_endpoint_prompt_tokens_total",
    "Tokens of the prompts that scrapes saw answered, cached ones included (docs/metrics.md).",
    labels=("endpoint", "model"),
)
ENDPOINT_GENERATED_TOKENS: Final = _counter(
    "coxswain_endpoint_generated_tokens_total",
    "Generated tokens that scrapes saw (docs/metrics.md).",
    labels=("endpoint", "model"),
)
MODEL_LOADED: Final = _gauge(
    "coxswain_machine_model_loaded",
    "Models on machines with a keeper: 1 if the model is loaded there, otherwise 0.",
    labels=("machine", "model"),
)
MODEL_LOAD_SECONDS: Final = _gauge(
    "coxswain_machine_model_load_seconds",
    "What the last load of a model took on a machine; absent before the first one.",
    labels=("machine", "model"),
    unit="s",
)
MODEL_CHANGES: Final = _counter(
    "coxswain_machine_model_changes_total",
    "Decisions to load or unload a model, by change: load or unload.",
    labels=("machine", "model", "change"),
)
MACHINE_CHANGES: Final = _counter(
    "coxswain_machine_power_changes_total",
    "What became of machines that sleep, by change: woken, not-woken, put-to-sleep or "
    "not-put-to-sleep. The machine has the name of its first endpoint.",
    labels=("machine", "change"),
)
MACHINE_WAKE_SECONDS: Final = _gauge(
    "coxswain_machine_wake_seconds",
    "What the last wake of a machine took until it served; absent before the first one.",
    labels=("machine",),
    unit="s",
)
PROBLEMS: Final = _gauge(
    "coxswain_problems",
    "What cannot be read (an endpoints file, DNS names, servers' keys) or does not work "
    "(the file of usage, KEDA's port, scrapes without descriptors, rules that are off). "
    "`/status` describes each.",
)
DROPPED: Final = _counter(
    "coxswain_telemetry_dropped_total",
    "Telemetry that was dropped because its receiver was slow or down: spans, metrics, log_lines.",
    labels=("signal",),
)
AUDIT_CORRECTIONS: Final = _counter(
    "coxswain_audit_corrections_total",
    "Faults that the auditor corrected, by kind. Each is a bug: report it.",
    labels=("kind",),
)
BYPASSED: Final = _counter(
    "coxswain_bypassed_requests_total",
    "Requests that Envoy sent to a server without asking this picker, although it served "
    "(docs/operations.md).",
)
EVENT_LOOP_LAG: Final = _histogram(
    "coxswain_event_loop_lag_seconds",
    "By how much the picker's event loop was late, ten times a second.",
    unit="s",
    buckets=_LAGS_S,
)
BOUND_REQUESTS: Final = _gauge(
    "coxswain_bound_requests",
    "Requests under a bound, by state: running (until their server has ended them) or queued.",
    labels=("kind", "name", "state"),
)
BOUND_LIMIT: Final = _gauge(
    "coxswain_bound_limit",
    "The highest number of these requests by state; absent without a limit.",
    labels=("kind", "name", "state"),
)
RULES: Final = _gauge(
    "coxswain_rule_on",
    "1 for each rule of `routing.rules`, 0 for one that failed and is off until the next reload.",
    labels=("rule",),
)
RULE_FAULTS: Final = _counter(
    "coxswain_rule_faults_total",
    "Calls of a rule that failed since it was loaded, by kind: error (an exception, or an"
    " answer that it may not give) or slow (more than 2 ms).",
    labels=("rule", "kind"),
)
ENVOY_FAILURES: Final = _counter(
    "coxswain_envoy_ext_proc_failures_total",
    "Counters of each Envoy in `envoy.stats`, by kind: message_timeouts (the picker "
    "answered too late), failure_mode_allowed (a request went on without it, or asked "
    "again) and streams_failed.",
    labels=("envoy", "kind"),
)
BUILD: Final = _gauge(
    "coxswain_build_info", "Always 1; the label is the version.", labels=("version",)
)
PROCESSES: Final = _gauge(
    "coxswain_processes",
    "With fronts: processes by role: core, spare, front, or starting.",
    labels=("role",),
)
TAKEOVERS: Final = _counter(
    "coxswain_takeovers_total",
    "With fronts: how often a spare took over from a core, by reason: ended (it crashed "
    "or was killed), hung (the supervisor killed it), left (it was asked to end) or "
    "member (it ran on another machine of the cluster).",
    labels=("reason",),
)
FRONT_CALLS: Final = _gauge(
    "coxswain_front_calls",
    "With fronts: Envoy's open streams at each front.",
    labels=("front",),
)
LEADER: Final = _gauge(
    "coxswain_leader", "In a cluster: 1 if this member leads, 0 if it stands by."
)
CLUSTER_MEMBERS: Final = _gauge(
    "coxswain_cluster_members",
    "In a cluster: the members that lived when Valkey or the Kubernetes API was heard last.",
)
CLUSTER_EPOCH: Final = _gauge(
    "coxswain_cluster_epoch", "In a cluster: the epoch, which grows by one with each election."
)
ENGINE_UP: Final = _gauge(
    "coxswain_cluster_engine_up",
    "In a cluster: whether Valkey or the Kubernetes API answers this member.",
)
_USAGE_LABELS: Final = ("client", "objective", "model", "tier")
USAGE_REQUESTS: Final = _counter(
    "coxswain_usage_requests_total",
    "With usage.path: requests by result: counted, uncounted (it had a slot, but its "
    "tokens are not known) or rejected.",
    labels=(*_USAGE_LABELS, "result"),
)
USAGE_TOKENS: Final = _counter(
    "coxswain_usage_tokens_total",
    "With usage.path: tokens by kind: prompt, cached (of the prompts) or generated.",
    labels=(*_USAGE_LABELS, "kind"),
)
USAGE_SLOT_SECONDS: Final = _counter(
    "coxswain_usage_slot_seconds_total",
    "With usage.path: for how long slots were held, in seconds summed over slots.",
    labels=_USAGE_LABELS,
    unit="s",
)
USAGE_COST: Final = _counter(
    "coxswain_usage_cost_total",
    "With usage.path: what this use costs by the prices of endpoints.",
    labels=_USAGE_LABELS,
)
