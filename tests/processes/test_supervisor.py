"""Claims about extproc/processes/supervisor.py; what it does is shown in tests/e2e."""

from __future__ import annotations

import os

import pytest

from extproc.processes.supervisor import Supervisor, front_count
from extproc.settings import Settings
from tests.fakes.envoy_stream import eventually
from tests.fakes.started_processes import COMMAND


def test_auto_leaves_a_processor_for_the_core() -> None:
    processors = len(os.sched_getaffinity(0))
    assert front_count(Settings(fronts="auto")) == max(1, processors - 1)
    assert front_count(Settings(fronts=3)) == 3
    assert front_count(Settings()) == 0


async def test_a_core_of_an_older_version_is_ended_once(caplog: pytest.LogCaptureFixture) -> None:
    """Its front connects again and again meanwhile, and each time the core reports it."""
    supervisor = Supervisor(Settings(fronts=1), COMMAND, [], 9002)
    table = supervisor._table
    supervisor._reconcile()
    await eventually(lambda: table.core is not None and table.started_spare() is not None)
    await eventually(lambda: any(each.has_started for each in table.fronts()))
    core, [front] = table.core, table.fronts()
    assert core is not None
    front.since = core.since + 1.0
    for _ in range(2):
        supervisor._heard(core, {"is": "other_version", "front": front.name})
    assert caplog.text.count("is replaced: ") == 1
    await eventually(lambda: table.core is not core)
    supervisor._is_stopping = True
    table.stop_starting()
    for member in table:
        member.end_at_once()
    await eventually(lambda: not list(table))
