"""Claims about extproc/processes/process_report.py."""

from __future__ import annotations

import json
from typing import Any

from extproc.processes.process_report import read_report
from tests.fakes.processes import some_processes


def test_the_core_shows_what_the_supervisor_says() -> None:
    processes = some_processes()
    said: dict[str, Any] = {
        "fronts": processes.fronts,
        "takeovers": dict(processes.takeovers),
        "restarts": dict(processes.restarts),
        "members": [each.as_json() for each in processes.members],
    }
    heard = json.loads(json.dumps({"do": "processes", **said}))
    assert read_report(heard, processes.last_takeover) == processes


def test_before_the_supervisor_has_said_anything() -> None:
    found = read_report({}, None)
    assert (found.fronts, found.members, found.total_takeovers) == (0, (), 0)
