"""Claims about extproc/app/alarm.py, on a real event loop."""

from __future__ import annotations

import asyncio

from extproc.app.alarm import Alarm


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
    alarm = Alarm(rung)
    now = asyncio.get_running_loop().time()
    alarm.wake_at(now + 3600)
    alarm.wake_at(now + 0.01)
    alarm.wake_at(now + 7200)
    await asyncio.wait_for(rung.once.wait(), 30)
    assert len(rung.times) == 1 and rung.times[0] >= now + 0.01


async def test_after_it_rang_it_can_be_set_again() -> None:
    """Also to a time that has passed."""
    rung = Rung()
    alarm = Alarm(rung)
    for _ in range(3):
        rung.once.clear()
        alarm.wake_at(0.0)
        await asyncio.wait_for(rung.once.wait(), 30)
    assert len(rung.times) == 3


async def test_stopped_it_is_silent() -> None:
    """Twice is no error; a new wish counts again."""
    rung = Rung()
    alarm = Alarm(rung)
    alarm.wake_at(0.0)
    alarm.stop()
    alarm.stop()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rung.times == []
    alarm.wake_at(0.0)
    await asyncio.wait_for(rung.once.wait(), 30)
