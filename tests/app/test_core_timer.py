"""Claims about extproc/app/core_timer.py, on a real event loop."""

from __future__ import annotations

import asyncio

import pytest

from extproc.app.core_timer import CoreTimer


class Rung:
    """Remembers at what time it was rung, and asks again as the core does."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.once = asyncio.Event()

    def __call__(self, now: float) -> None:
        self.times.append(now)
        self.once.set()


async def test_it_rings_at_the_earliest_time_that_was_asked_for() -> None:
    """A later wish does not put it off, and neither rings twice."""
    rung = Rung()
    timer = CoreTimer(rung)
    now = asyncio.get_running_loop().time()
    timer.wake_at(now + 3600)
    timer.wake_at(now + 0.01)
    timer.wake_at(now + 7200)
    await asyncio.wait_for(rung.once.wait(), 30)
    assert len(rung.times) == 1 and rung.times[0] < now + 3600


@pytest.mark.parametrize("ahead_s", [-1.0, 0.0, 0.0001, 0.0004, 0.0006, 0.01])
async def test_a_wish_for_a_time_that_is_near_stands_a_later_one(ahead_s: float) -> None:
    """Where the loop calls back at once it gives no timer handle; a second wish works all the same,
    be it earlier or later."""
    rung = Rung()
    timer = CoreTimer(rung)
    now = asyncio.get_running_loop().time()
    timer.wake_at(now + ahead_s)
    timer.wake_at(now + 3600)
    timer.wake_at(now + ahead_s - 0.0001)
    await asyncio.wait_for(rung.once.wait(), 30)
    assert len(rung.times) == 1


async def test_after_it_rang_it_can_be_set_again() -> None:
    """Also to a time that has passed."""
    rung = Rung()
    timer = CoreTimer(rung)
    for _ in range(3):
        rung.once.clear()
        timer.wake_at(0.0)
        await asyncio.wait_for(rung.once.wait(), 30)
    assert len(rung.times) == 3


async def test_stopped_it_is_silent() -> None:
    """Twice is no error; a new wish counts again."""
    rung = Rung()
    timer = CoreTimer(rung)
    timer.wake_at(0.0)
    timer.stop()
    timer.stop()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rung.times == []
    timer.wake_at(0.0)
    await asyncio.wait_for(rung.once.wait(), 30)
