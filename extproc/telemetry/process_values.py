"""The processes of `fronts` as metrics."""

from collections import Counter
from typing import Final

from extproc.core.processes import ClusterReport, Processes, TakeoverReason
from extproc.telemetry import definitions
from extproc.telemetry.definitions import Family
from extproc.telemetry.reading import Values

ROLES: Final = ("core", "spare", "front", "starting")


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
