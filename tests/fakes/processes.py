"""The processes of a picker with two fronts, after a takeover."""

from __future__ import annotations

from extproc.core.processes import ClusterMember, ClusterReport, Process, Processes, Takeover


def some_processes() -> Processes:
    return Processes(
        fronts=2,
        takeovers={"ended": 2, "hung": 1, "left": 0},
        restarts={"core": 3, "front": 1},
        members=(
            Process(name="core-4", role="core", pid=11, age_s=9.5),
            Process(name="core-5", role="starting spare", pid=12, age_s=0.5),
            Process(
                name="front-3", role="front", pid=13, age_s=9.0, connections=1, calls=7, number=1
            ),
            Process(
                name="front-2", role="front", pid=14, age_s=99.0, connections=2, calls=5, number=2
            ),
        ),
        last_takeover=Takeover(seconds=0.251, running=8, queued=4, fronts=2),
    )


def some_cluster() -> ClusterReport:
    """Two members, of which the one that answers leads; Valkey is down."""
    return ClusterReport(
        member="a",
        leader="a",
        is_leading=True,
        epoch=7,
        elections=3,
        is_in_touch=False,
        engine_error="no answer within 0.5 s",
        members=(
            ClusterMember(
                name="a", address="10.0.0.2:9004", version="1", fronts=2, is_leading=True
            ),
            ClusterMember(
                name="b", address="10.0.0.3:9004", version="1", fronts=2, is_leading=False
            ),
        ),
    )
