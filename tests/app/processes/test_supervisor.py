"""Claims about extproc/app/processes/supervisor.py; what it does is shown in tests/e2e."""

from __future__ import annotations

import asyncio
import os

from extproc.app.processes.member import Member, Role
from extproc.app.processes.supervisor import RESTART_MAX_S, Supervisor, _delay_s, front_count
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


async def test_the_numbers_of_fronts_are_used_again() -> None:
    """They are a metric's label, so they must not grow with each restart."""
    process = await asyncio.create_subprocess_exec("true")
    await process.wait()
    supervisor = Supervisor(Settings(fronts=2), ["coxswain"], [], 0)
    for serial in (1, 2, 3):
        front = Member(Role.FRONT, f"front-{serial}", process)
        front.number = supervisor._free_number()
        supervisor._members[front.name] = front
        assert front.number == serial
    del supervisor._members["front-2"]
    assert supervisor._free_number() == 2
