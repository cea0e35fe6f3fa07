"""Claims about extproc/processes/core_links.py, with real processes."""

from __future__ import annotations

from extproc.processes.core_links import CoreLinks
from extproc.processes.member import Role
from tests.fakes.envoy_stream import eventually
from tests.fakes.started_processes import some_started
from tests.processes.test_cluster_part import OTHER, ScriptedEngine, taking_part


async def test_a_spare_that_leads_is_linked_with_every_front() -> None:
    async with some_started() as processes:
        links = CoreLinks(processes.table, None, 9002)
        fronts = await processes.start(Role.FRONT, 2)
        links.link(fronts[0])
        assert fronts[0].link == 0, "no core leads"
        core, spare = await processes.start(Role.CORE, 2)
        links.promote(core, lost_at=7.0)
        assert processes.table.core is core
        lead = await processes.order_to(core.name, "lead")
        assert (lead["fronts"], lead["port"], lead["since"]) == (
            [each.name for each in fronts],
            9002,
            7.0,
        )
        for front in fronts:
            order = await processes.order_to(front.name, "link")
            assert (order["number"], order["sockets"]) == (front.link, 1)
            assert links.is_present(front, front.link)
        names = [each["front"] for each in processes.orders(core.name, "link")]
        assert names == [each.name for each in fronts]
        before = fronts[0].link
        links.link(fronts[0])
        assert not links.is_present(fronts[0], before)
        links.feed(core)
        links.feed(spare)
        assert (await processes.order_to(core.name, "feed"))["spare"] == spare.name
        assert (await processes.order_to(spare.name, "learn"))["sockets"] == 1
        assert len(processes.orders(core.name, "feed")) == 1


async def test_fronts_follow_the_leader_of_another_machine() -> None:
    engine = ScriptedEngine()
    engine.elect(OTHER)
    async with taking_part(engine) as part, some_started() as processes:
        await eventually(lambda: part.leader() is not None)
        links = CoreLinks(processes.table, part, 9002)
        (front,) = await processes.start(Role.FRONT, 1)
        links.link(front)
        order = await processes.order_to(front.name, "follow")
        assert (order["number"], order["sockets"]) == (front.link, 0)
        assert order["term"]["leader"] == OTHER.id


async def test_a_core_of_a_cluster_is_given_its_permission_and_what_operators_asked_for() -> None:
    engine = ScriptedEngine()
    engine.kept = {"10.0.0.9:80": "drained"}
    async with taking_part(engine) as part, some_started() as processes:
        await eventually(lambda: part.is_leading)
        (front,) = await processes.start(Role.FRONT, 1)
        (core,) = await processes.start(Role.CORE, 1)
        CoreLinks(processes.table, part, 9002).promote(core, lost_at=None)
        lead = await processes.order_to(core.name, "lead")
        assert lead["fronts"] == [part.qualified(front.name), *OTHER.fronts]
        assert lead["lease_grant"]["until"] > 0
        restore = await processes.order_to(core.name, "restore")
        assert (restore["entries"], restore["begins"], restore["ends"]) == (
            engine.kept,
            True,
            True,
        )


async def test_the_core_hears_that_a_front_stands_still() -> None:
    """If Envoy may have sent it requests."""
    async with some_started() as processes:
        links = CoreLinks(processes.table, None, 9002)
        (front,) = await processes.start(Role.FRONT, 1)
        front.is_silent, front.connections = True, 1
        links.report_silence(front)  # no core leads: nobody to say it to
        (core,) = await processes.start(Role.CORE, 1)
        processes.table.core = core
        front.connections = 0
        links.report_silence(front)
        front.connections = 1
        links.report_silence(front)
        front.is_silent, front.connections = False, 0
        links.report_silence(front)
        await eventually(lambda: len(processes.orders(core.name, "silence")) == 2)
        said = [
            (each["front"], each["is_silent"]) for each in processes.orders(core.name, "silence")
        ]
        assert said == [(front.name, True), (front.name, False)]
