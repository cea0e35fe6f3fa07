"""Claims about extproc/processes/drain.py, with real processes."""

from __future__ import annotations

from dataclasses import replace

from extproc.processes.cluster.engine import Beat, View
from extproc.processes.drain import drain, hand_over
from extproc.processes.member import Role
from tests.fakes.envoy_stream import eventually
from tests.fakes.started_processes import some_started
from tests.processes.test_cluster_part import ScriptedEngine, taking_part


async def test_the_core_ends_before_the_fronts() -> None:
    async with some_started() as processes:
        (front,) = await processes.start(Role.FRONT, 1)
        core, spare = await processes.start(Role.CORE, 2)
        processes.table.core = core
        await drain(processes.table, 60.0)
        await eventually(lambda: len(processes.ended) == 3)
        assert spare.name in processes.ended
        assert processes.ended.index(core.name) < processes.ended.index(front.name)
        orders = [
            said["order"]["do"]
            for who, said in processes.said
            if who == front.name and "order" in said
        ]
        assert orders == ["unready", "stop"]


async def test_another_member_leads_before_the_fronts_leave() -> None:
    engine = ScriptedEngine()
    async with taking_part(engine) as part, some_started() as processes:
        await eventually(lambda: part.is_leading)
        (front,) = await processes.start(Role.FRONT, 1)
        (core,) = await processes.start(Role.CORE, 1)
        processes.table.core = core
        assert await hand_over(processes.table, part, 60.0)
        assert [processes.table.core, part.is_leading] == [None, False]
        assert engine.said == [f"resign {part.id}"]
        await eventually(lambda: len(processes.ended) == 2)
        assert processes.ended == [core.name, front.name]


class LonelyEngine(ScriptedEngine):
    """Knows of no other member."""

    async def beat(self, beat: Beat) -> View:
        return replace(await super().beat(beat), members=(beat.member,))


async def test_a_member_that_is_alone_hands_nothing_over() -> None:
    async with taking_part(LonelyEngine()) as part, some_started() as processes:
        await eventually(lambda: part.is_leading)
        (core,) = await processes.start(Role.CORE, 1)
        processes.table.core = core
        assert not await hand_over(processes.table, part, 60.0)
        assert processes.table.core is core
        await eventually(lambda: part.is_leading)


async def test_a_member_that_is_alone_drains_even_if_its_lease_has_ended() -> None:
    engine = LonelyEngine()
    async with taking_part(engine) as part, some_started() as processes:
        await eventually(lambda: part.is_leading)
        (core,) = await processes.start(Role.CORE, 1)
        processes.table.core = core
        await part.resign()
        assert not part.is_leading
        assert not await hand_over(processes.table, part, 60.0)
        assert processes.table.core is core
