"""Claims about extproc/processes/cluster/valkey.py, over a real Valkey or Redis."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from extproc.processes.cluster.engine import Beat, EngineError, Member
from extproc.processes.cluster.valkey import ValkeyEngine
from tests.fakes.valkey import MISSING, PROGRAM, Valkey

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

LEASE_S = 8.0


@pytest_asyncio.fixture
async def valkey(tmp_path: Path) -> AsyncIterator[Valkey]:
    async with Valkey(tmp_path) as found:
        yield found


@pytest_asyncio.fixture
async def engine(valkey: Valkey) -> AsyncIterator[ValkeyEngine]:
    found = ValkeyEngine("test", [valkey.url], LEASE_S)
    yield found
    await found.aclose()


@pytest_asyncio.fixture
async def other(valkey: Valkey) -> AsyncIterator[ValkeyEngine]:
    found = ValkeyEngine("test", [valkey.url], LEASE_S)
    yield found
    await found.aclose()


def beat(name: str, *, leads: bool = False, epoch: int = 0, wants: bool = True) -> Beat:
    member = Member(id=f"{name}/1", name=name, address=f"{name}:9")
    return Beat(member=member, is_candidate=wants, is_leading=leads, has_lease=leads, epoch=epoch)


async def test_an_engine_that_hangs_is_given_up(valkey: Valkey, engine: ValkeyEngine) -> None:
    await engine.beat(beat("a"))
    valkey.strike(signal.SIGSTOP)
    try:
        with pytest.raises(EngineError):
            await engine.beat(beat("a", leads=True, epoch=1))
    finally:
        valkey.strike(signal.SIGCONT)


@pytest.mark.parametrize("is_known", [False, True])
async def test_what_a_server_that_stood_still_reads_late_has_no_effect(
    valkey: Valkey, engine: ValkeyEngine, other: ValkeyEngine, is_known: bool
) -> None:
    """Else a member that has given up would lead, which knows nothing of that."""
    if is_known:
        await engine.beat(beat("a", wants=False))
    assert (await other.beat(beat("b", wants=False))).leader is None
    valkey.strike(signal.SIGSTOP)
    try:
        with pytest.raises(EngineError):
            await engine.beat(beat("a"))
    finally:
        valkey.strike(signal.SIGCONT)
    for _ in range(5):
        assert (await other.beat(beat("b", wants=False))).leader is None
    view = await engine.beat(beat("a"))
    assert view.leader is not None and view.leader.name == "a"


async def test_who_gives_a_beat_up_does_so_when_the_server_ignores_it(
    valkey: Valkey, other: ValkeyEngine
) -> None:
    """Not a millisecond earlier, as timers of uvloop may end."""
    engine = ValkeyEngine("test", [valkey.url], 0.08)
    ends_ms: list[int] = []

    async def unanswered(keys: list[str], args: list[str | int]) -> None:
        ends_ms.append(int(args[-1]))
        await asyncio.Event().wait()

    engine._beat = unanswered  # type: ignore[assignment]
    try:
        for _ in range(50):
            with pytest.raises(EngineError):
                await engine.beat(beat("a"))
            seconds, microseconds = await other._client.time()
            now_ms = seconds * 1000 + microseconds // 1000
            assert all(now_ms >= each for each in ends_ms)
    finally:
        await engine.aclose()
    assert ends_ms


async def test_keys_that_hold_something_else_are_named(
    valkey: Valkey, engine: ValkeyEngine
) -> None:
    await engine._client.hset("{coxswain:test}:leader", mapping={"epoch": 3, "record": "[1]"})
    with pytest.raises(EngineError, match=r"choose another cluster\.name"):
        await engine.beat(beat("a", wants=False))
