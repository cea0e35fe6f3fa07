"""Claims about extproc/processes/supervisor.py; what it does is shown in tests/e2e."""

from __future__ import annotations

import os

from extproc.processes.supervisor import front_count
from extproc.settings import Settings


def test_auto_leaves_a_processor_for_the_core() -> None:
    processors = len(os.sched_getaffinity(0))
    assert front_count(Settings(fronts="auto")) == max(1, processors - 1)
    assert front_count(Settings(fronts=3)) == 3
    assert front_count(Settings()) == 0
