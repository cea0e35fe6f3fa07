"""Claims about extproc/processes/liveness.py, with real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from extproc.core.processes import TakeoverReason
from extproc.processes.liveness import (
    CHECK_S,
    HUNG_S,
    MINUTE_S,
    SILENT_S,
    SOON_KILLED,
    START_S,
    STILL_S,
    TAKEOVER_S,
    Liveness,
)
from extproc.processes.member import Member, Role
from tests.fakes.envoy_stream import eventually
from tests.fakes.started_processes import StartedProcesses, some_started


class Watched:
    """Processes and a clock of the test."""

    def __init__(self, processes: StartedProcesses) -> None:
        self.processes = processes
        self.now = 1000.0
        self.changes: list[tuple[str, bool]] = []
        self.liveness = Liveness(processes.table, self._changed, self.now)

    async def start(self, role: Role, count: int) -> list[Member]:
        members = await self.processes.start(role, count)
        for member in members:
            member.alive_at = self.now
        return members

    def silent_for(self, member: Member) -> float:
        """Let this one be silent until it is killed; returns how long that took."""
        began = self.now
        self.pass_until(lambda: member.is_hung, [member])
        return self.now - began

    def pass_until(self, is_over: Callable[[], bool], silent: Iterable[Member]) -> None:
        """Let time pass; all others give signs of life."""
        while not is_over():
            self.now += CHECK_S
            for each in self.processes.table:
                if each not in silent:
                    self.liveness.heard(each, self.now)
            self.liveness.check(self.now)

    def _changed(self, member: Member) -> None:
        self.changes.append((member.name, member.is_silent))


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    async with some_started() as processes:
        yield Watched(processes)


def is_about(found_s: float, limit_s: float) -> bool:
    return limit_s < found_s < limit_s + 2 * CHECK_S


async def test_a_silent_process_is_killed(watched: Watched) -> None:
    quiet, alive = await watched.start(Role.CORE, 2)
    assert is_about(watched.silent_for(quiet), HUNG_S)
    await eventually(lambda: watched.processes.ended == [quiet.name])
    assert quiet.takeover_reason() is TakeoverReason.HUNG
    assert not alive.is_hung and not watched.changes


async def test_one_that_starts_has_more_time(watched: Watched) -> None:
    (quiet,) = await watched.start(Role.CORE, 1)
    quiet.has_started = False
    assert is_about(watched.silent_for(quiet), START_S)


async def test_a_core_has_time_to_take_over_and_is_killed_soon_if_it_has_a_spare(
    watched: Watched,
) -> None:
    core, spare = await watched.start(Role.CORE, 2)
    watched.processes.table.core = core
    assert is_about(watched.silent_for(core), TAKEOVER_S)
    await eventually(lambda: core not in watched.processes.table)
    watched.processes.table.core = spare
    (another,) = await watched.start(Role.CORE, 1)
    spare.is_ready = True
    assert is_about(watched.silent_for(spare), STILL_S)
    await eventually(lambda: spare not in watched.processes.table)
    watched.processes.table.core = another
    another.is_ready = True
    assert is_about(watched.silent_for(another), HUNG_S), "it has no spare"


async def test_a_front_that_stands_still_is_reported_before_it_is_killed(watched: Watched) -> None:
    front, other = await watched.start(Role.FRONT, 2)
    watched.pass_until(lambda: front.is_silent, [front])
    assert is_about(watched.now - front.alive_at, SILENT_S)
    assert watched.changes == [(front.name, True)]
    watched.liveness.heard(front, watched.now)
    assert watched.changes == [(front.name, True), (front.name, False)]
    assert is_about(watched.silent_for(front), STILL_S)
    assert not other.is_hung and len(watched.changes) == 3


async def test_a_front_has_time_to_hand_over_what_it_holds(watched: Watched) -> None:
    first, second = await watched.start(Role.FRONT, 2)
    first.linked_at = second.linked_at = watched.now
    assert is_about(watched.silent_for(first), TAKEOVER_S)
    assert is_about(watched.silent_for(second), STILL_S), "it has done so"


async def test_a_slow_machine_is_given_more_time(watched: Watched) -> None:
    """If many are killed within a minute."""
    fronts = await watched.start(Role.FRONT, SOON_KILLED + 2)
    for front in fronts[:SOON_KILLED]:
        assert is_about(watched.silent_for(front), STILL_S)
    assert is_about(watched.silent_for(fronts[-2]), HUNG_S)
    until = watched.now + MINUTE_S
    watched.pass_until(lambda: watched.now > until, [])
    assert is_about(watched.silent_for(fronts[-1]), STILL_S)


async def test_nobody_is_blamed_for_a_pause_of_the_supervisor(watched: Watched) -> None:
    (front,) = await watched.start(Role.FRONT, 1)
    watched.pass_until(lambda: front.is_silent, [front])
    watched.now += 10 * HUNG_S
    watched.liveness.check(watched.now)
    assert not front.is_hung and not front.is_silent
    assert front.alive_at == watched.now
    assert watched.changes == [(front.name, True), (front.name, False)]
