"""When an endpoint is looked at again."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.address import Address
from extproc.core.observation import Observation, ScrapeStatus
from extproc.runners import issues
from extproc.runners.probe import ScrapePriority
from scraper.schedule import Cadence, Schedule

CADENCE = Cadence(fast_s=0.2, slow_s=2.0, eager_s=5.0, jitter=0.1)


def schedule() -> Schedule:
    return Schedule(CADENCE, lambda: 0.5)  # the middle: no jitter


def saw(status: ScrapeStatus, busy: int | None = 0, is_slow: bool = False) -> Observation:
    return Observation(
        address=Address("127.0.0.1", 1),
        began_at=0.0,
        answered_at=0.0,
        status=status,
        busy_slots=busy,
        issues=(issues.slow_slots(3.0),) if is_slow else (),
    )


@pytest.mark.parametrize(
    ("observation", "priority", "expected"),
    [
        (saw(ScrapeStatus.READY), ScrapePriority.IDLE, 2.0),
        (saw(ScrapeStatus.READY, busy=2), ScrapePriority.STEADY, 2.0),
        (saw(ScrapeStatus.READY, busy=2), ScrapePriority.HIGH, 0.2),
        (saw(ScrapeStatus.READY, busy=None), ScrapePriority.HIGH, 2.0),
        (saw(ScrapeStatus.READY, busy=None, is_slow=True), ScrapePriority.IDLE, 0.2),
        (saw(ScrapeStatus.LOADING, busy=None), ScrapePriority.IDLE, 0.2),
        (saw(ScrapeStatus.ASLEEP), ScrapePriority.IDLE, 2.0),
        (saw(ScrapeStatus.ASLEEP), ScrapePriority.STEADY, 0.2),
        (saw(ScrapeStatus.UNREACHABLE, busy=None), ScrapePriority.IDLE, 0.2),
        (saw(ScrapeStatus.FAILED, busy=None), ScrapePriority.IDLE, 0.2),
    ],
)
def test_the_interval_follows_the_table(
    observation: Observation, priority: ScrapePriority, expected: float
) -> None:
    assert schedule().next_delay_s(10.0, observation, priority) == pytest.approx(expected)


def test_a_dead_server_is_scraped_eagerly_then_less_and_less_but_for_ever() -> None:
    cadence = schedule()
    now, delays = 0.0, []
    for _ in range(40):
        delays.append(cadence.next_delay_s(now, saw(ScrapeStatus.UNREACHABLE), ScrapePriority.IDLE))
        now += delays[-1]
    assert delays[:24] == pytest.approx([0.2] * 24)
    assert sorted(set(delays)) == pytest.approx([0.2, 0.4, 0.8, 1.6, 2.0])
    assert delays == sorted(delays)
    assert set(delays[30:]) == {2.0}


def test_a_server_that_came_back_is_eagerly_awaited_when_it_fails_again() -> None:
    cadence = schedule()
    for now in (0.0, 6.0, 8.0, 10.0, 12.0):
        cadence.next_delay_s(now, saw(ScrapeStatus.FAILED), ScrapePriority.IDLE)
    cadence.next_delay_s(13.0, saw(ScrapeStatus.READY), ScrapePriority.IDLE)
    assert cadence.next_delay_s(
        14.0, saw(ScrapeStatus.FAILED), ScrapePriority.IDLE
    ) == pytest.approx(0.2)


@given(st.integers(), st.sampled_from(ScrapeStatus), st.sampled_from(ScrapePriority))
def test_jitter_stays_within_its_part(
    seed: int, status: ScrapeStatus, priority: ScrapePriority
) -> None:
    delay = Schedule(CADENCE, random.Random(seed).random).next_delay_s(0.0, saw(status), priority)
    plain = schedule().next_delay_s(0.0, saw(status), priority)
    assert 0.9 * plain <= delay <= 1.1 * plain


def test_jitter_spreads_to_both_sides() -> None:
    """Or a fleet that came up at once would be looked at in one burst for ever."""
    delays = [
        Schedule(CADENCE, partial(float, one)).next_delay_s(
            0.0, saw(ScrapeStatus.READY), ScrapePriority.IDLE
        )
        for one in (0.0, 0.5, 1.0)
    ]
    assert delays == pytest.approx([1.8, 2.0, 2.2])


@pytest.mark.parametrize(
    "wrong", [{"fast_s": 0.0}, {"fast_s": 3.0}, {"jitter": 1.0}, {"jitter": -0.1}, {"eager_s": -1}]
)
def test_an_impossible_cadence_is_rejected(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Cadence(**wrong)


def test_fast_scrapes_leave_the_server_its_second_of_silence() -> None:
    cadence = schedule()
    delays = [
        cadence.next_delay_s(0.0, saw(ScrapeStatus.READY, busy=2), ScrapePriority.HIGH)
        for _ in range(8)
    ]
    assert delays == pytest.approx([0.2, 0.2, 0.2, 1.2] * 2)
    cadence.next_delay_s(0.0, saw(ScrapeStatus.READY, busy=2), ScrapePriority.STEADY)
    assert cadence.next_delay_s(
        0.0, saw(ScrapeStatus.READY, busy=2), ScrapePriority.HIGH
    ) == pytest.approx(0.2)
