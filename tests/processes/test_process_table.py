"""Claims about extproc/processes/process_table.py, with real processes."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from extproc.processes.member import Role
from extproc.processes.process_table import RESTART_MAX_S, _delay_s
from tests.fakes.envoy_stream import eventually
from tests.fakes.started_processes import StartedProcesses, some_started


def test_a_process_that_ends_again_and_again_is_started_less_and_less_often() -> None:
    delays = [_delay_s(lives) for lives in range(20)]
    assert delays[:3] == [0.0, 0.0, 0.0], "one that is killed is replaced at once"
    assert delays == sorted(delays)
    assert 0 < delays[3] < 1
    assert delays[-1] == RESTART_MAX_S


async def test_only_what_is_missing_is_started() -> None:
    async with some_started() as processes:
        table = processes.table
        table.start_missing(Role.FRONT, 2)
        table.start_missing(Role.FRONT, 2)  # they have not started yet
        await processes.start(Role.FRONT, 2)
        await processes.start(Role.CORE, 1)
        assert {each.name for each in table} == {"front-1", "front-2", "core-1"}
        assert processes.changes == 3
        core = table.started_spare()
        assert core is not None and core in table
        table.core = core
        assert table.spares() == [] and table.started_spare() is None
        front = table.fronts()[0]
        front.is_ready = True
        assert table.ready_fronts() == [front]
        front.is_leaving = True
        assert front in table and front not in table.fronts()
        assert table.ready_fronts() == []


async def test_a_core_that_led_is_ending_until_it_is_gone() -> None:
    """Another one cannot have its ports before."""
    async with some_started() as processes:
        table = processes.table
        core, spare = await processes.start(Role.CORE, 2)
        table.core, core.is_ready = core, True
        assert table.ending_core() is None
        spare.is_leaving = True
        assert table.ending_core() is None, "it has none"
        table.core = None
        core.end_at_once()
        assert table.ending_core() is core
        await eventually(lambda: processes.ended == [core.name])
        assert table.ending_core() is None


async def test_the_numbers_of_fronts_are_used_again() -> None:
    """They are a metric's label, so they must not grow with each restart."""
    async with some_started() as processes:
        fronts = await processes.start(Role.FRONT, 3)
        assert sorted(each.number for each in fronts) == [1, 2, 3]
        lost = next(each for each in fronts if each.number == 2)
        lost.send_signal(signal.SIGKILL)
        await eventually(lambda: processes.ended == [lost.name])
        assert lost not in processes.table
        fronts = await processes.start(Role.FRONT, 3)
        assert sorted((each.number, each.name) for each in fronts)[1] == (2, "front-4")


async def test_ends_that_nobody_wanted_are_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with some_started() as processes:
        first, second = await processes.start(Role.FRONT, 2)
        first.send_signal(signal.SIGKILL)
        second.order("stop")
        await eventually(lambda: len(processes.ended) == 2)
        caplog.clear()  # which levels are logged before depends on earlier tests
        with caplog.at_level("INFO", "coxswain.processes"):
            processes.table.count_end(first, is_wanted=False)
            processes.table.count_end(second, is_wanted=True)
        (lost, left) = caplog.messages
        assert lost.endswith("killed by SIGKILL")
        assert left == f"{second.name} ended"
        assert processes.table.describe()["restarts"] == {"core": 0, "front": 1}


async def test_operators_see_what_each_process_is() -> None:
    async with some_started() as processes:
        (front,) = await processes.start(Role.FRONT, 1)
        leads, spare = await processes.start(Role.CORE, 2)
        processes.table.core = leads
        front.is_ready = True
        spare.has_started = False
        members = processes.table.describe()["members"]
        assert isinstance(members, list)
        roles = {each["name"]: each["role"] for each in members}
        assert roles == {front.name: "front", leads.name: "core", spare.name: "starting spare"}


async def test_a_program_that_is_gone_is_reported(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def make() -> StartedProcesses:
        return StartedProcesses((str(tmp_path / "nothing"),))

    async with some_started(make) as processes:
        processes.table.start_missing(Role.CORE, 1)
        await eventually(lambda: caplog.messages)
        assert "could not be started" in caplog.messages[0]
        assert list(processes.table) == []
