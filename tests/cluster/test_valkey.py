"""Claims about extproc/cluster/valkey.py, over a real Valkey or Redis."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from extproc.cluster.engine import Beat, EngineError, Member, View
from extproc.cluster.valkey import ValkeyEngine
from tests.fakes.valkey import MISSING, PROGRAM, Valkey

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

LEASE_S = 2.0


@pytest_asyncio.fixture
async def valkey(tmp_path: Path) -> AsyncIterator[Valkey]:
    async with Valkey(tmp_path) as found:
        yield found


@pytest_asyncio.fixture
async def engine(valkey: Valkey) -> AsyncIterator[ValkeyEngine]:
    found = ValkeyEngine("test", [valkey.url], LEASE_S)
    yield found
    await found.aclose()


def member(name: str) -> Member:
    return Member(id=f"{name}/1", name=name, address=f"{name}:9", fronts=(f"{name}/front-1",))


def beat(name: str, *, wants: bool = True, leads: bool = False, epoch: int = 0) -> Beat:
    return Beat(member=member(name), is_candidate=wants, is_leading=leads, epoch=epoch)


def led_by(view: View) -> tuple[str, int, bool]:
    assert view.leader is not None
    return view.leader.name, view.leader.epoch, view.is_held


async def until_led(engine: ValkeyEngine, asked: Beat) -> tuple[str, int, bool]:
    """Ask until this member leads."""
    async with asyncio.timeout(60):
        while True:
            view = await engine.beat(asked)
            if view.leader is not None and view.leader.id == asked.member.id:
                return led_by(view)
            await asyncio.sleep(0.02)


async def test_the_first_candidate_leads_until_it_is_silent(engine: ValkeyEngine) -> None:
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


async def test_who_resigns_is_followed_at_once(engine: ValkeyEngine) -> None:
    await engine.beat(beat("a"))
    await engine.resign("a/1")
    view = await engine.beat(beat("b", epoch=1))
    assert led_by(view) == ("b", 2, True)
    assert view.leader is not None
    assert view.leader.is_clean
    await engine.leave("a/1")
    assert [each.name for each in (await engine.beat(beat("b"))).members] == ["b"]


async def test_only_the_holder_can_resign(engine: ValkeyEngine) -> None:
    await engine.beat(beat("a"))
    await engine.resign("b/1")
    assert led_by(await engine.beat(beat("b"))) == ("a", 1, True)


async def test_a_leader_that_cannot_lead_gives_the_lock_back(engine: ValkeyEngine) -> None:
    await engine.beat(beat("a"))
    assert led_by(await engine.beat(beat("a", wants=False, leads=True, epoch=1)))[2] is False
    assert led_by(await engine.beat(beat("b", epoch=1))) == ("b", 2, True)


async def test_an_engine_that_forgot_everything_learns_the_epoch_from_its_leader(
    valkey: Valkey, engine: ValkeyEngine
) -> None:
    await engine.beat(beat("a"))
    await valkey.kill()
    with pytest.raises(EngineError):
        await engine.beat(beat("a", leads=True, epoch=7))
    await valkey.start()
    for _ in range(2):
        view = await engine.beat(beat("b", epoch=6))
        assert view.leader is None, "it waits for the leader first"
    assert led_by(await engine.beat(beat("a", leads=True, epoch=7))) == ("a", 7, True)
    assert led_by(await engine.beat(beat("b", epoch=7))) == ("a", 7, True)


async def test_the_leader_of_an_epoch_that_others_told_keeps_it(engine: ValkeyEngine) -> None:
    await engine.beat(beat("b", epoch=7))
    assert led_by(await engine.beat(beat("a", leads=True, epoch=7))) == ("a", 7, True)


async def test_a_forgotten_epoch_is_not_given_again(engine: ValkeyEngine) -> None:
    assert (await engine.beat(beat("b", epoch=7))).leader is None
    assert await until_led(engine, beat("b", epoch=7)) == ("b", 8, True)


async def test_a_later_epoch_goes_before_the_holder_of_an_earlier_one(
    engine: ValkeyEngine,
) -> None:
    """An engine came back with an old state, and elected somebody with it."""
    await engine.beat(beat("b"))
    assert led_by(await engine.beat(beat("a", leads=True, epoch=7))) == ("a", 7, True)
    assert led_by(await engine.beat(beat("b", leads=True, epoch=1))) == ("a", 7, True)


async def test_a_leader_of_the_same_epoch_is_not_replaced(engine: ValkeyEngine) -> None:
    await until_led(engine, beat("b", epoch=6))
    assert led_by(await engine.beat(beat("a", leads=True, epoch=7))) == ("b", 7, True)


async def test_clusters_of_different_names_do_not_meet(
    valkey: Valkey, engine: ValkeyEngine
) -> None:
    other = ValkeyEngine("other", [valkey.url], LEASE_S)
    await engine.beat(beat("a"))
    assert led_by(await other.beat(beat("b"))) == ("b", 1, True)
    await other.aclose()


async def test_an_engine_that_hangs_is_given_up(valkey: Valkey, engine: ValkeyEngine) -> None:
    await engine.beat(beat("a"))
    valkey.strike(signal.SIGSTOP)
    try:
        with pytest.raises(EngineError):
            await engine.beat(beat("a", leads=True, epoch=1))
    finally:
        valkey.strike(signal.SIGCONT)


async def test_keys_that_hold_something_else_are_named(
    valkey: Valkey, engine: ValkeyEngine
) -> None:
    await engine._client.hset("{coxswain:test}:leader", mapping={"epoch": 3, "record": "[1]"})
    with pytest.raises(EngineError, match=r"choose another cluster\.name"):
        await engine.beat(beat("a", wants=False))
