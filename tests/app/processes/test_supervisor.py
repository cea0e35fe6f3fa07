"""Claims about extproc/app/processes/supervisor.py; what it does is shown in tests/e2e."""

from __future__ import annotations

import os

from extproc.app.processes.supervisor import RESTART_MAX_S, _delay_s, front_count
from extproc.settings import Settings


def test_auto_leaves_a_processor_for_the_core() -> None:
    processors = len(os.sched_getaffinity(0))
    assert front_count(Settings(fronts="auto")) == max(1, processors - 1)
    assert front_count(Settings(fronts=3)) == 3
    assert front_count(Settings()) == 0


def test_a_process_that_ends_again_and_again_is_started_less_and_less_often() -> None:
    delays = [_delay_s(lives) for lives in range(20)]
    assert delays[:3] == [0.0, 0.0, 0.0], "one that is killed is replaced at once"
    assert delays == sorted(delays)
    assert 0 < delays[3] < 1
    assert delays[-1] == RESTART_MAX_S
