"""The claims that every engine holds: a real Valkey or Redis, and Leases of a Kubernetes API server
that is the test's own. Each member speaks through a client of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Protocol

import pytest
import pytest_asyncio

from extproc.processes.cluster.engine import Beat, Engine, EngineError, Member, View
from extproc.processes.cluster.kubernetes import KubernetesEngine
from extproc.processes.cluster.valkey import ValkeyEngine
from tests.fakes.api_server import FakeApiServer
from tests.fakes.valkey import MISSING, PROGRAM, Valkey

EXPIRING = pytest.mark.parametrize("lease_s", [6.0])
"""For tests that wait until a lease has ended. Long enough for calls, each of which may take a
fourth of it."""


class EngineRig(Protocol):
    """One kind of engine: its server, and clients of it."""

    def make(self, name: str) -> Engine:
        """A client of the cluster of this name."""

    async def kill(self) -> None:
        """All that it knew is gone."""

    async def start(self) -> None:
        """Start it again, empty."""


class ValkeyRig:
    def __init__(self, valkey: Valkey, lease_s: float) -> None:
        self._valkey = valkey
        self._lease_s = lease_s
        self.kill, self.start = valkey.kill, valkey.start

    def make(self, name: str) -> Engine:
        return ValkeyEngine(name, [self._valkey.url], self._lease_s)


class KubernetesRig:
    def __init__(self, api: FakeApiServer, lease_s: float) -> None:
        self._api = api
        self._lease_s = lease_s
        self.start = api.start

    def make(self, name: str) -> Engine:
        return KubernetesEngine(name, self._api.url, "serving", self._api.folder, self._lease_s)

    async def kill(self) -> None:
        await self._api.stop()
        self._api.objects.clear()


class PerMember:
    """An engine whose members each have a client of their own."""

    def __init__(self, rig: EngineRig) -> None:
        self.eager_s = 0.0
        self._rig = rig
        self._clients: dict[str, Engine] = {}

    def _of(self, member_id: str) -> Engine:
        if member_id not in self._clients:
            self._clients[member_id] = self._rig.make("test")
        return self._clients[member_id]

    async def beat(self, beat: Beat) -> View:
        return await self._of(beat.member.id).beat(beat)

    async def intents(self) -> Mapping[str, str]:
        return await self._of("reader").intents()

    async def set_intents(self, member_id: str, changes: Mapping[str, str | None]) -> None:
        await self._of(member_id).set_intents(member_id, changes)

    async def resign(self, member_id: str) -> None:
        await self._of(member_id).resign(member_id)

    async def leave(self, member_id: str) -> None:
        await self._of(member_id).leave(member_id)

    async def aclose(self) -> None:
        for each in self._clients.values():
            await each.aclose()


@pytest.fixture
def lease_s() -> float:
    return 60.0


@pytest_asyncio.fixture(params=["valkey", "kubernetes"])
async def rig(
    request: pytest.FixtureRequest, tmp_path: Path, lease_s: float
) -> AsyncIterator[EngineRig]:
    if request.param == "valkey":
        if PROGRAM is None:
            pytest.skip(MISSING)
        async with Valkey(tmp_path) as valkey:
            yield ValkeyRig(valkey, lease_s)
    else:
        async with FakeApiServer(tmp_path) as api:
            yield KubernetesRig(api, lease_s)


@pytest_asyncio.fixture
async def engine(rig: EngineRig) -> AsyncIterator[Engine]:
    found = PerMember(rig)
    yield found
    await found.aclose()


def member(name: str) -> Member:
    return Member(id=f"{name}/1", name=name, address=f"{name}:9", fronts=(f"{name}/front-1",))


def beat(
    name: str,
    *,
    wants: bool = True,
    leads: bool = False,
    has_lease: bool | None = None,
    epoch: int = 0,
) -> Beat:
    """A member that leads has its lease, if nothing else is said."""
    return Beat(
        member=member(name),
        is_candidate=wants,
        is_leading=leads,
        has_lease=leads if has_lease is None else has_lease,
        epoch=epoch,
    )


def led_by(view: View) -> tuple[str, int, bool]:
    assert view.leader is not None
    return view.leader.name, view.leader.epoch, view.is_held


async def until_led(engine: Engine, asked: Beat) -> tuple[str, int, bool]:
    """Ask until this member leads."""
    async with asyncio.timeout(60):
        while True:
            view = await engine.beat(asked)
            if view.leader is not None and view.leader.id == asked.member.id:
                return led_by(view)
            await asyncio.sleep(0.02)


@EXPIRING
async def test_the_first_candidate_leads_until_it_is_silent(engine: Engine) -> None:
    assert (await engine.beat(beat("a", wants=False))).leader is None
    assert led_by(await engine.beat(beat("a"))) == ("a", 1, True)
    assert led_by(await engine.beat(beat("b"))) == ("a", 1, True)
    view = await engine.beat(beat("a", leads=True, epoch=1))
    assert led_by(view) == ("a", 1, True)
    assert [each.name for each in view.members] == ["a", "b"]
    assert view.members[1] == member("b")
    assert await until_led(engine, beat("b", epoch=1)) == ("b", 2, True)
    view = await engine.beat(beat("b", leads=True, epoch=2))
    assert [each.name for each in view.members] == ["b"], "the silent one has left"
    assert view.leader is not None
    assert not view.leader.is_clean


@EXPIRING
async def test_a_leader_that_was_out_of_touch_goes_on_in_its_epoch(engine: Engine) -> None:
    """Its fronts follow it, and nobody was elected since its lease has run out."""
    await engine.beat(beat("a"))
    async with asyncio.timeout(60):
        while True:
            view = await engine.beat(beat("b", wants=False, epoch=1))
            if not view.is_held:
                break
            await asyncio.sleep(0.02)
    goes_on = beat("a", leads=True, has_lease=False, epoch=1)
    assert led_by(await engine.beat(goes_on)) == ("a", 1, True)
    assert await until_led(engine, beat("b", epoch=1)) == ("b", 2, True)
    assert led_by(await engine.beat(goes_on)) == ("b", 2, True)
    await engine.resign("b/1")
    assert led_by(await engine.beat(goes_on)) == ("b", 2, False), "b may decide for a while"
    assert led_by(await engine.beat(beat("a", epoch=2))) == ("a", 3, True)


async def test_a_leader_without_a_lease_claims_no_epoch_that_the_engine_has_forgotten(
    engine: Engine,
) -> None:
    """Another one may have led since, and the engine may have forgotten that as well."""
    for _ in range(2):
        view = await engine.beat(beat("a", leads=True, has_lease=False, epoch=7))
        assert view.leader is None
    assert led_by(await engine.beat(beat("b", leads=True, epoch=8))) == ("b", 8, True)


async def test_who_resigns_is_followed_at_once(engine: Engine) -> None:
    await engine.beat(beat("a"))
    await engine.resign("a/1")
    view = await engine.beat(beat("b", epoch=1))
    assert led_by(view) == ("b", 2, True)
    assert view.leader is not None
    assert view.leader.is_clean
    await engine.leave("a/1")
    assert [each.name for each in (await engine.beat(beat("b"))).members] == ["b"]


async def test_only_the_holder_can_resign(engine: Engine) -> None:
    await engine.beat(beat("a"))
    await engine.resign("b/1")
    assert led_by(await engine.beat(beat("b"))) == ("a", 1, True)


async def test_a_leader_that_cannot_lead_gives_the_lock_back(engine: Engine) -> None:
    await engine.beat(beat("a"))
    assert led_by(await engine.beat(beat("a", wants=False, leads=True, epoch=1)))[2] is False
    assert led_by(await engine.beat(beat("b", epoch=1))) == ("b", 2, True)


async def test_an_engine_that_forgot_everything_learns_the_epoch_from_its_leader(
    rig: EngineRig, engine: Engine
) -> None:
    await engine.beat(beat("a"))
    await rig.kill()
    with pytest.raises(EngineError):
        await engine.beat(beat("a", leads=True, epoch=7))
    await rig.start()
    for _ in range(2):
        view = await engine.beat(beat("b", epoch=6))
        assert view.leader is None, "it waits for the leader first"
    assert led_by(await engine.beat(beat("a", leads=True, epoch=7))) == ("a", 7, True)
    assert led_by(await engine.beat(beat("b", epoch=7))) == ("a", 7, True)


async def test_the_leader_of_an_epoch_that_others_told_keeps_it(engine: Engine) -> None:
    await engine.beat(beat("b", epoch=7))
    assert led_by(await engine.beat(beat("a", leads=True, epoch=7))) == ("a", 7, True)


@EXPIRING
async def test_a_forgotten_epoch_is_not_given_again(engine: Engine) -> None:
    assert (await engine.beat(beat("b", epoch=7))).leader is None
    assert await until_led(engine, beat("b", epoch=7)) == ("b", 8, True)


async def test_a_later_epoch_goes_before_the_holder_of_an_earlier_one(
    engine: Engine,
) -> None:
    """An engine came back with an old state, and elected somebody with it."""
    await engine.beat(beat("b"))
    assert led_by(await engine.beat(beat("a", leads=True, epoch=7))) == ("a", 7, True)
    assert led_by(await engine.beat(beat("b", leads=True, epoch=1))) == ("a", 7, True)


@EXPIRING
async def test_a_leader_of_the_same_epoch_is_not_replaced(engine: Engine) -> None:
    await until_led(engine, beat("b", epoch=6))
    assert led_by(await engine.beat(beat("a", leads=True, epoch=7))) == ("b", 7, True)


async def test_what_operators_asked_for_is_kept_while_no_member_lives(
    rig: EngineRig, engine: Engine
) -> None:
    await engine.beat(beat("a"))
    assert await engine.intents() == {}
    many = {f"10.0.0.1:{port}": "x" * 100 for port in range(1200)}
    await engine.set_intents("a/1", {**many, "10.0.0.2:1": "one", "10.0.0.2:2": "two"})
    await engine.set_intents("a/1", {**dict.fromkeys(many), "10.0.0.2:1": None, "gone": None})
    await engine.resign("a/1")
    await engine.leave("a/1")
    other = rig.make("test")
    assert await other.intents() == {"10.0.0.2:2": "two"}
    await other.aclose()
    elsewhere = rig.make("other")
    assert await elsewhere.intents() == {}
    await elsewhere.aclose()


async def test_only_the_leader_says_what_operators_asked_for(engine: Engine) -> None:
    await engine.beat(beat("a"))
    await engine.set_intents("a/1", {"10.0.0.2:1": "one"})
    await engine.set_intents("b/1", {"10.0.0.2:1": None})
    await engine.resign("a/1")
    await engine.set_intents("a/1", {"10.0.0.2:1": "late"})
    assert await engine.intents() == {"10.0.0.2:1": "one"}


async def test_clusters_of_different_names_do_not_meet(rig: EngineRig, engine: Engine) -> None:
    other = rig.make("other")
    await engine.beat(beat("a"))
    assert led_by(await other.beat(beat("b"))) == ("b", 1, True)
    await other.aclose()
