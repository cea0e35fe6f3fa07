"""Claims about extproc/core/processes.py: what a supervisor tells its cores."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from extproc.core.processes import ClusterReport, Processes
from tests.fakes.processes import some_cluster, some_processes


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
        "members": [dataclasses.asdict(each) for each in processes.members],
    }
    heard = json.loads(json.dumps({"do": "processes", **said}))
    assert Processes.reported(heard, processes.last_takeover) == processes


def test_before_the_supervisor_has_said_anything() -> None:
    found = Processes.reported({}, None)
    assert (found.fronts, found.members, found.total_takeovers) == (0, (), 0)
