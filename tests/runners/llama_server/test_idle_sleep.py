"""/slots is never asked of a sleeper, and seldom enough of one that wants to sleep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.runners.llama_server.idle_sleep import IdleSleepTracker, SleepBehaviour
from extproc.runners.probe import ScrapePriority, SleepTrial

TRIAL = SleepTrial(linger_s=30.0, trial_s=900.0)


class Sleeper:
    """A llama-server's idle timer, as its source has it."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.last_task_at = 0.0
        self.slept_at: float | None = None
        self.wakes_by_probe = 0

    def is_asleep(self, now: float) -> bool:
        if self.slept_at is None and now - self.last_task_at >= self.timeout_s:
            self.slept_at = now
        return self.slept_at is not None

    def take_task(self, now: float) -> None:
        self.slept_at = None
        self.last_task_at = now


def scrape(watch: IdleSleepTracker, sleeper: Sleeper, now: float, priority: ScrapePriority) -> bool:
    """One look as `Lookout` does it; whether /slots was asked."""
    if watch.needs_props(now, priority):
        watch.on_props(sleeper.is_asleep(now))
    if not watch.may_request_slots(now, priority):
        return False
    sleeper.wakes_by_probe += sleeper.is_asleep(now)
    sleeper.take_task(now)
    watch.on_slots(now, busy_slots=0)
    return True


@given(
    timeout_s=st.integers(1, 800),
    interval_s=st.sampled_from([0.2, 0.5, 1.0, 2.0, 3.7]),
    declared=st.sampled_from([None, True]),
)
def test_who_wants_to_sleep_sleeps_and_is_never_woken(
    timeout_s: int, interval_s: float, declared: bool | None
) -> None:
    watch, sleeper = IdleSleepTracker(TRIAL, declared), Sleeper(timeout_s)
    now = 0.0
    while now < 4_000 and sleeper.slept_at is None:
        scrape(watch, sleeper, now, ScrapePriority.IDLE)
        now += interval_s
    assert watch.behaviour is SleepBehaviour.SLEEPS
    for _ in range(100):
        assert not scrape(watch, sleeper, now, ScrapePriority.IDLE)
        now += interval_s
    assert sleeper.wakes_by_probe == 0


def test_a_declared_sleeper_is_asked_once_and_then_left_in_peace() -> None:
    watch, sleeper = IdleSleepTracker(TRIAL, declared=True), Sleeper(100)
    asked = [scrape(watch, sleeper, 2.0 * i, ScrapePriority.IDLE) for i in range(60)]
    assert asked == [True] + [False] * 59
    assert sleeper.slept_at == 100.0


def test_a_server_that_never_sleeps_is_known_as_such_after_the_trial() -> None:
    watch, sleeper = IdleSleepTracker(TRIAL, declared=None), Sleeper(10**9)
    now = 0.0
    while watch.behaviour is SleepBehaviour.UNKNOWN:
        scrape(watch, sleeper, now, ScrapePriority.IDLE)
        now += 2.0
    assert watch.behaviour is SleepBehaviour.STAYS_AWAKE
    assert now < 3 * TRIAL.trial_s
    assert not watch.needs_props(now, ScrapePriority.IDLE)
    assert watch.may_request_slots(now, ScrapePriority.IDLE)


def test_a_build_that_knows_no_sleep_needs_no_trial() -> None:
    watch = IdleSleepTracker(TRIAL, declared=None)
    watch.on_props(None)
    assert watch.behaviour is SleepBehaviour.STAYS_AWAKE


def test_the_operator_may_say_that_it_stays_awake() -> None:
    watch = IdleSleepTracker(TRIAL, declared=False)
    assert not watch.needs_props(0.0, ScrapePriority.IDLE)
    assert watch.may_request_slots(10_000.0, ScrapePriority.IDLE)


def test_what_is_seen_asleep_sleeps_whatever_was_declared() -> None:
    watch = IdleSleepTracker(TRIAL, declared=False)
    watch.on_props(True)
    assert not watch.may_request_slots(0.0, ScrapePriority.STEADY)


@pytest.mark.parametrize("priority", [ScrapePriority.STEADY, ScrapePriority.HIGH])
def test_our_own_leases_are_reason_enough_to_ask(priority: ScrapePriority) -> None:
    watch, sleeper = IdleSleepTracker(TRIAL, declared=True), Sleeper(10**9)
    scrape(watch, sleeper, 0.0, ScrapePriority.IDLE)
    assert not scrape(watch, sleeper, 2.0, ScrapePriority.IDLE)
    assert scrape(watch, sleeper, 4.0, priority)


def test_under_our_own_load_a_server_of_unknown_nature_costs_one_question() -> None:
    watch = IdleSleepTracker(TRIAL, declared=None)
    watch.on_props(False)
    watch.on_slots(0.0, busy_slots=1)
    assert not watch.needs_props(100.0, ScrapePriority.STEADY)
    assert watch.needs_props(100.0, ScrapePriority.HIGH)
    watch.on_props(True)
    assert watch.needs_props(100.0, ScrapePriority.STEADY)


def test_busy_slots_are_watched_until_they_are_free() -> None:
    watch = IdleSleepTracker(TRIAL, declared=True)
    watch.on_props(False)
    watch.on_slots(0.0, busy_slots=1)
    assert watch.may_request_slots(2.0, ScrapePriority.IDLE)
    assert not watch.needs_props(0.2, ScrapePriority.IDLE)
    assert watch.needs_props(2.0, ScrapePriority.IDLE)
    watch.on_slots(2.0, busy_slots=0)
    assert not watch.may_request_slots(4.0, ScrapePriority.IDLE)


def test_somebody_woke_it_so_its_slots_are_counted() -> None:
    watch = IdleSleepTracker(TRIAL, declared=None)
    watch.on_props(True)
    assert not watch.may_request_slots(0.0, ScrapePriority.IDLE)
    watch.on_props(False)
    assert watch.may_request_slots(2.0, ScrapePriority.IDLE)


def test_what_woke_it_may_take_its_slot_after_the_first_look() -> None:
    watch = IdleSleepTracker(TRIAL, None)
    watch.on_slots(0.0, 0)
    watch.on_props(True)
    watch.on_props(False)
    for now in (10.0, 10.3, 10.9):
        assert watch.may_request_slots(now, ScrapePriority.IDLE)
        watch.on_slots(now, 0)
    assert watch.may_request_slots(11.2, ScrapePriority.IDLE)
    watch.on_slots(11.2, 1)
    assert watch.may_request_slots(50.0, ScrapePriority.IDLE), "until its slot is free"
    watch.on_slots(50.0, 0)
    assert not watch.may_request_slots(50.1, ScrapePriority.IDLE)


def test_who_woke_it_and_left_lets_it_sleep_again() -> None:
    watch = IdleSleepTracker(TRIAL, None)
    watch.on_slots(0.0, 0)
    watch.on_props(True)
    watch.on_props(False)
    for now in (10.0, 11.1):
        assert watch.may_request_slots(now, ScrapePriority.IDLE)
        watch.on_slots(now, 0)
    assert not watch.may_request_slots(11.2, ScrapePriority.IDLE)


def test_another_process_is_another_trial() -> None:
    watch = IdleSleepTracker(TRIAL, declared=None)
    watch.on_props(None)
    watch.start_process()
    assert watch.behaviour is SleepBehaviour.UNKNOWN


def test_an_impossible_trial_is_rejected() -> None:
    with pytest.raises(ValueError):
        SleepTrial(linger_s=10.0, trial_s=5.0)
