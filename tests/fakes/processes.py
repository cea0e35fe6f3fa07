"""The processes of a picker with two fronts, after a takeover."""

from __future__ import annotations

from extproc.core.processes import Process, Processes, Takeover


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
