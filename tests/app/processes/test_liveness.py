"""Claims about extproc/app/processes/liveness.py, with real processes."""

from __future__ import annotations

import pytest

from extproc.app.processes.liveness import CHECK_S, HUNG_S, START_S, Liveness
from extproc.app.processes.member import Role
from extproc.core.processes import TakeoverReason
from tests.fakes.envoy_stream import eventually
from tests.fakes.started_processes import some_started


@pytest.mark.parametrize(("has_started", "limit_s"), [(True, HUNG_S), (False, START_S)])
async def test_a_silent_process_is_killed(has_started: bool, limit_s: float) -> None:
    async with some_started() as processes:
        quiet, alive = await processes.start(Role.CORE, 2)
        quiet.has_started = has_started
        now = quiet.alive_at
        liveness = Liveness(now)
        for _ in range(int(limit_s / CHECK_S)):
            now += CHECK_S
            alive.alive_at = now
            liveness.check(processes.table, now)
        assert not quiet.is_hung
        liveness.check(processes.table, now + CHECK_S)
        await eventually(lambda: processes.ended == [quiet.name])
        assert quiet.takeover_reason() is TakeoverReason.HUNG
        assert not alive.is_hung


async def test_nobody_is_blamed_for_a_pause_of_the_supervisor() -> None:
    async with some_started() as processes:
        (member,) = await processes.start(Role.CORE, 1)
        now = member.alive_at
        liveness = Liveness(now)
        liveness.check(processes.table, now + 10 * HUNG_S)
        assert not member.is_hung
        assert member.alive_at == now + 10 * HUNG_S
