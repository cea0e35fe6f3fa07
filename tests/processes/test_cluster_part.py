"""Claims about extproc/processes/cluster_part.py, with an engine of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from extproc.processes.cluster.engine import Beat, EngineError, Leader, Member, View
from extproc.processes.cluster_part import ClusterPart
from extproc.settings.cluster_section import ClusterSettings
from tests.fakes.envoy_stream import eventually

OTHER = Member(id="b/1", name="b", address="10.0.0.3:9004", fronts=("b/front-1",))


class ScriptedEngine:
    """Answers as the test wants."""

    def __init__(self) -> None:
        self.eager_s = 0.05
        self.leader: Leader | None = None
        self.is_down = False
        self.beats: list[Beat] = []
        self.said: list[str] = []
        self.kept: dict[str, str] = {}

    async def beat(self, beat: Beat) -> View:
        if self.is_down:
            raise EngineError("it is down")
        self.beats.append(beat)
        if self.leader is None and beat.is_candidate:
            self.elect(beat.member)
        return View(leader=self.leader, is_held=True, members=(beat.member, OTHER))

    async def intents(self) -> Mapping[str, str]:
        if self.is_down:
            raise EngineError("it is down")
        return dict(self.kept)

    async def set_intents(self, member_id: str, changes: Mapping[str, str | None]) -> None:
        assert self.leader is not None and self.leader.id == member_id
        for address, text in changes.items():
            self.kept.pop(address, None)
            if text is not None:
                self.kept[address] = text

    def elect(self, member: Member) -> None:
        epoch = 1 if self.leader is None else self.leader.epoch + 1
        self.leader = Leader(id=member.id, name=member.name, address=member.address, epoch=epoch)

    async def resign(self, member_id: str) -> None:
        self.said.append(f"resign {member_id}")

    async def leave(self, member_id: str) -> None:
        self.said.append(f"leave {member_id}")

    async def aclose(self) -> None:
        self.said.append("closed")


@asynccontextmanager
async def taking_part(engine: ScriptedEngine) -> AsyncIterator[ClusterPart]:
    settings = ClusterSettings(
        name="c", valkey=("redis://v:1",), advertise="10.0.0.2:9004", member="a", lease_s=0.5
    )
    part = ClusterPart(
        settings,
        engine,
        can_lead=lambda: True,
        follows=lambda: False,
        fronts=lambda: ("a/front-1",),
        changed=lambda: None,
    )
    part.start()
    try:
        yield part
    finally:
        await part.aclose()


async def test_a_member_that_is_elected_says_so_and_is_permitted_to_decide() -> None:
    engine = ScriptedEngine()
    async with taking_part(engine) as part:
        await eventually(lambda: part.is_leading)
        assert engine.beats[-1].member.fronts == ("a/front-1",)
        assert part.leader() is None, "it follows nobody"
        assert part.term()["leader"] == part.id
        assert part.lease_grant()["until"] > 0
        assert part.lease_grant()["fronts"] == ["b/front-1"]
        report = part.report()
        assert (report["leader"], report["is_leading"], report["epoch"]) == ("a", True, 1)
        assert [each["name"] for each in report["members"]] == ["a", "b"]
        assert report["elections"] == 1
    assert engine.said == [f"resign {part.id}", f"leave {part.id}", "closed"]


async def test_the_leader_of_another_machine_is_followed() -> None:
    engine = ScriptedEngine()
    engine.elect(OTHER)
    async with taking_part(engine) as part:
        await eventually(lambda: part.leader() is not None)
        assert part.term() == {
            "leader": "b/1",
            "epoch": 1,
            "is_clean": False,
            "address": "10.0.0.3:9004",
        }
        assert [each.name for each in part.others()] == ["b"]
    assert engine.said == [f"leave {part.id}", "closed"]


async def test_an_engine_that_is_down_changes_nothing_and_is_reported() -> None:
    engine = ScriptedEngine()
    async with taking_part(engine) as part:
        await eventually(lambda: part.is_leading)
        engine.is_down = True
        await eventually(lambda: part.report()["engine_error"])
        assert part.is_leading
        assert not part.report()["is_in_touch"]
        engine.is_down = False
        await eventually(lambda: part.report()["is_in_touch"])
        assert part.report()["engine_error"] == ""


async def test_a_member_that_resigned_does_not_lead() -> None:
    engine = ScriptedEngine()
    async with taking_part(engine) as part:
        await eventually(lambda: part.is_leading)
        engine.elect(OTHER)
        await part.resign()
        assert not part.is_leading
        await asyncio.sleep(0)
    assert engine.said.count(f"resign {part.id}") == 1


async def test_what_the_core_says_reaches_the_engine_also_one_that_has_forgotten() -> None:
    engine = ScriptedEngine()
    engine.kept = {"old": "1", "gone": "1"}
    async with taking_part(engine) as part:
        await eventually(lambda: part.is_leading)
        assert part.intents.entries() == {"old": "1", "gone": "1"}, "before its core leads"
        part.intents.said({"old": "1"}, begins=True, ends=False)
        part.intents.said({"new": "1"}, begins=False, ends=True)
        await eventually(lambda: engine.kept == {"old": "1", "new": "1"})
        part.intents.said({"old": None, "new": "2"}, begins=False, ends=True)
        await eventually(lambda: engine.kept == {"new": "2"})
        engine.is_down = True
        await eventually(lambda: part.report()["engine_error"])
        engine.kept = {"wrong": "1"}
        engine.is_down = False
        await eventually(lambda: engine.kept == {"new": "2"})
