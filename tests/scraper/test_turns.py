"""Claims about scraper/turns.py."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from scraper import turns
from scraper.turns import URGENT_OF, Pace, Turn, Turns


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_a_small_fleet_waits_for_no_turn(clock: Clock) -> None:
    """The turns of a fifth of a second at once, and as many again as time has passed since."""
    given = Turns(Pace(max_per_s=500), clock)
    assert all(given.ask(is_urgent=False).done() for _ in range(100))
    clock.now += 0.101
    assert all(given.ask(is_urgent=False).done() for _ in range(50))


async def test_more_wait_in_order_behind_the_urgent(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait are served a few at each tick; every fourth is not urgent."""
    monkeypatch.setattr(turns, "TICK_S", 0.001)
    given, order = Turns(Pace(max_per_s=1000), clock), []
    for _ in range(200):
        given.ask(is_urgent=False)
    others = [given.ask(is_urgent=False) for _ in range(6)]
    urgent = [given.ask(is_urgent=True) for _ in range(5)]
    names = {turn: f"other {number}" for number, turn in enumerate(others)}
    names |= {turn: f"urgent {number}" for number, turn in enumerate(urgent)}
    for turn in names:
        turn.add_done_callback(lambda done: order.append(names[done]))
    assert not any(turn.done() for turn in names)
    await asyncio.gather(*names)
    first = [name for name in order if name.startswith("urgent")]
    assert first == [f"urgent {number}" for number in range(5)]
    assert [name for name in order if name.startswith("other")] == [
        f"other {number}" for number in range(6)
    ]
    assert order.index("other 0") == URGENT_OF - 1
    assert order[-5:] == [f"other {number}" for number in range(1, 6)]


async def test_a_turn_may_become_urgent_or_be_given_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that nobody wants any more costs none of the others a turn."""
    monkeypatch.setattr(turns, "TICK_S", 0.001)
    given = Turns(Pace(max_per_s=1000), clock)
    done = [given.ask(is_urgent=False) for _ in range(200)]
    waiting = [given.ask(is_urgent=False) for _ in range(10)]
    order: list[int] = []
    for number, turn in enumerate(waiting):
        turn.add_done_callback(partial(_note, number, order))
    waiting[0].cancel()
    given.hurry(waiting[9])
    given.hurry(done[0])
    await asyncio.gather(*waiting, return_exceptions=True)
    assert order == [9, *range(1, 9)]


async def test_none_waits_when_all_that_waited_were_given_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TICK_S", 0.001)
    given = Turns(Pace(max_per_s=200), clock)
    for _ in range(40):
        given.ask(is_urgent=False)
    given.ask(is_urgent=True).cancel()
    given.ask(is_urgent=False).cancel()
    await given.ask(is_urgent=False)
    clock.now += 5.0
    await given.ask(is_urgent=False)


def _note(number: int, order: list[int], turn: Turn) -> None:
    if not turn.cancelled():
        order.append(number)


def test_a_pace_that_never_moves_is_refused() -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match="max_per_s"):
        Pace(max_per_s=0)
