"""Claims about extproc/core/processes.py: what `/status` shows of the processes."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from extproc.core.processes import ClusterReport, Processes
from tests.fakes.processes import some_cluster, some_processes


def test_all_of_it_is_in_the_json() -> None:
    processes = some_processes()
    found = json.loads(json.dumps(processes.as_json()))
    assert found["fronts"] == 2
    assert (found["takeovers"], found["takeovers_by_reason"]["hung"]) == (3, 1)
    assert found["restarts"] == {"core": 3, "front": 1}
    assert found["last_takeover"] == dataclasses.asdict(processes.last_takeover)  # type: ignore[arg-type]
    assert found["members"][2:] == [dataclasses.asdict(each) for each in processes.members[2:]]
    assert "number" not in found["members"][0], "a core has none"


def test_before_the_first_takeover_there_is_none() -> None:
    processes = dataclasses.replace(some_processes(), last_takeover=None, takeovers={})
    assert processes.as_json()["last_takeover"] is None
    assert processes.as_json()["takeovers"] == 0


def test_a_report_of_the_cluster_is_the_same_after_json() -> None:
    """A supervisor sends it to its cores as JSON."""
    report = some_cluster()
    assert ClusterReport.from_json(json.loads(json.dumps(report.as_json()))) == report


def test_the_core_shows_what_the_supervisor_says() -> None:
    processes = some_processes()
    said: dict[str, Any] = {
        "fronts": processes.fronts,
        "takeovers": dict(processes.takeovers),
        "restarts": dict(processes.restarts),
        "members": [each.as_json() for each in processes.members],
    }
    heard = json.loads(json.dumps({"do": "processes", **said}))
    assert Processes.reported(heard, processes.last_takeover) == processes


def test_before_the_supervisor_has_said_anything() -> None:
    found = Processes.reported({}, None)
    assert (found.fronts, found.members, found.total_takeovers) == (0, (), 0)
