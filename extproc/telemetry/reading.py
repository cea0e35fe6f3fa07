"""A reading: all metrics at one moment, the input of every exporter. What other parts count becomes
values of metrics here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from extproc.core.bounds import Bound
from extproc.core.processes import ClusterReport, Processes, TakeoverReason
from extproc.core.views.waits import ModelQueue, WaitReason
from extproc.telemetry import definitions
from extproc.telemetry.counters import Distribution
from extproc.telemetry.definitions import Family
from extproc.usage.counts import UsageCounts, UsageKey

ROLES: Final = ("core", "spare", "front", "starting")

Value = float | Distribution
"""A histogram's value is a `Distribution`, any other's a number."""

Values = Mapping[tuple[str, ...], Value]
"""The values of one metric by its label values, in the order of `Family.labels`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`taken_at_ns` and `since_ns` (from when on counters count) are Unix nanoseconds."""

    taken_at_ns: int
    since_ns: int
    families: Mapping[Family, Values]


def read_models(queues: Mapping[str, ModelQueue]) -> dict[Family, Values]:
    """The metrics of the queues of models."""
    depths: dict[tuple[str, ...], float] = {}
    for model, queue in queues.items():
        depths[model, WaitReason.NO_IDLE_SLOT.value] = 0
        for reason, count in queue.by_reason.items():
            depths[model, reason.value] = count
    return {
        definitions.MODEL_QUEUE_DEPTH: depths,
        definitions.MODEL_IDLE_SLOTS: {(model,): one.idle_slots for model, one in queues.items()},
    }


def read_models_by_pool(queues: Mapping[tuple[str, str], ModelQueue]) -> dict[Family, Values]:
    """The same of the queues by pool and model, with the label `pool`."""
    found: dict[Family, dict[tuple[str, ...], Value]] = {}
    for (pool, model), queue in queues.items():
        for family, values in read_models({model: queue}).items():
            of_all = found.setdefault(family.by_pool(), {})
            of_all.update({(*labels, pool): value for labels, value in values.items()})
    return {**found}


def read_bounds(bounds: Iterable[Bound]) -> dict[Family, Values]:
    """The metrics of bounds, which the settings name."""
    requests: dict[tuple[str, ...], float] = {}
    limits: dict[tuple[str, ...], float] = {}
    for bound in bounds:
        for state, count, most in (
            ("running", bound.running, bound.limits.running),
            ("queued", bound.queued, bound.limits.queued),
        ):
            requests[bound.kind.value, bound.name, state] = count
            if most is not None:
                limits[bound.kind.value, bound.name, state] = most
    return {definitions.BOUND_REQUESTS: requests, definitions.BOUND_LIMIT: limits}


def by_label(counts: Mapping[str, int]) -> Values:
    """The values of a metric with one label."""
    return {(label,): count for label, count in counts.items()}


def read_usage(sums: Mapping[UsageKey, UsageCounts]) -> dict[Family, Values]:
    """The metrics of these sums since the start; they are bounded in number."""
    requests: dict[tuple[str, ...], float] = {}
    tokens: dict[tuple[str, ...], float] = {}
    slot_s: dict[tuple[str, ...], float] = {}
    cost: dict[tuple[str, ...], float] = {}
    for key, counts in sums.items():
        requests[*key, "counted"] = counts.requests - counts.uncounted
        requests[*key, "uncounted"] = counts.uncounted
        requests[*key, "rejected"] = counts.rejected
        tokens[*key, "prompt"] = counts.prompt_tokens
        tokens[*key, "cached"] = counts.cached_tokens
        tokens[*key, "generated"] = counts.generated_tokens
        slot_s[tuple(key)] = counts.slot_s
        cost[tuple(key)] = counts.cost
    return {
        definitions.USAGE_REQUESTS: requests,
        definitions.USAGE_TOKENS: tokens,
        definitions.USAGE_SLOT_SECONDS: slot_s,
        definitions.USAGE_COST: cost,
    }


def read_processes(processes: Processes) -> dict[Family, Values]:
    """The metrics of these processes. A front's number is used again after it ended, so they are
    bounded in number."""
    roles = Counter(each.role.partition(" ")[0] for each in processes.members)
    cluster = {} if processes.cluster is None else read_cluster(processes.cluster)
    return {
        **cluster,
        definitions.PROCESSES: {(role,): roles[role] for role in ROLES},
        definitions.TAKEOVERS: {
            (reason.value,): processes.takeovers.get(reason.value, 0) for reason in TakeoverReason
        },
        definitions.FRONT_CALLS: {
            (str(each.number),): each.calls for each in processes.members if each.number
        },
    }


def read_cluster(cluster: ClusterReport) -> dict[Family, Values]:
    """The metrics of a cluster, as one member sees it."""
    return {
        definitions.LEADER: {(): int(cluster.is_leading)},
        definitions.CLUSTER_MEMBERS: {(): len(cluster.members)},
        definitions.CLUSTER_EPOCH: {(): cluster.epoch},
        definitions.ENGINE_UP: {(): int(cluster.is_in_touch)},
    }
