"""Claims about extproc/core/scaling/machine_power.py."""

from __future__ import annotations

from dataclasses import replace

from extproc.core.fleet.endpoint import WakeOptions
from extproc.core.placement.machine import Power
from extproc.core.scaling.machine_power import (
    LEAST_DELAY_S,
    PACKET_S,
    STILL_AWAKE_S,
    Action,
    MachinePower,
    Seen,
)

OPTIONS = WakeOptions(mac="02:00:00:00:00:01", after_idle_s=300.0, sleep_command=("off",))
IDLE = Seen(is_serving=True, is_answering=True)
BUSY = IDLE._replace(is_busy=True)
GONE = Seen(is_serving=False, is_answering=False)
WANTED = GONE._replace(is_wanted=True)
LOADING = Seen(is_serving=False, is_answering=True, is_wanted=True)


def asleep(now: float = 0.0) -> MachinePower:
    power = MachinePower()
    assert power.step(GONE, OPTIONS, now) is None
    assert power.state is Power.OFF
    return power


def test_a_machine_is_woken_by_packets_at_intervals_until_it_serves() -> None:
    """It needs none while it loads its model. What it took is expected of the next wake."""
    power = asleep()
    assert power.step(GONE, OPTIONS, 1.0) is None, "nobody wants it"
    assert power.step(WANTED, OPTIONS, 10.0) is Action.WAKE
    assert power.ready_at() is None
    assert power.step(WANTED, OPTIONS, 11.0) is None
    assert power.step(GONE, OPTIONS, 10.0 + PACKET_S) is Action.SEND, "the wake has begun"
    assert power.step(LOADING, OPTIONS, 30.0) is None
    assert power.step(IDLE, OPTIONS, 50.0) is Action.WOKEN
    assert (power.last_wake_s, power.packets) == (40.0, 2)
    power = replace_state(power, 100.0)
    assert power.step(WANTED, OPTIONS, 101.0) is Action.WAKE
    assert (power.ready_at(), power.packets) == (141.0, 1)


def replace_state(power: MachinePower, now: float) -> MachinePower:
    """Somebody switched it off."""
    assert power.step(GONE, OPTIONS, now) is None
    return power


def test_a_machine_that_does_not_wake_is_tried_again_later() -> None:
    """A minute later at first, then two; by then it may be wanted no more."""
    power, now = asleep(), 0.0
    for failures in (1, 2):
        assert power.step(WANTED, OPTIONS, now) is Action.WAKE
        now += OPTIONS.timeout_s
        assert power.step(WANTED, OPTIONS, now) is Action.LOST
        assert power.failed_wakes == failures
        assert power.step(WANTED, OPTIONS, now + 1) is None
        now += LEAST_DELAY_S * 2 ** (failures - 1)
        assert power.step(GONE, OPTIONS, now) is None
    assert power.step(LOADING, OPTIONS, now) is Action.RETURNED
    assert power.failed_wakes == 0


def test_an_idle_machine_is_put_to_sleep() -> None:
    """It has not slept until no scrape is answered, whatever the command says."""
    power = MachinePower()
    assert power.step(IDLE, OPTIONS, 0.0) is None
    assert power.step(BUSY, OPTIONS, 100.0) is None
    assert power.step(IDLE, OPTIONS, 399.0) is None
    short = IDLE._replace(used_at=399.5)
    assert power.step(short, OPTIONS, 400.0) is None, "a request between two steps"
    assert power.step(short, OPTIONS, 699.5) is Action.SLEEP
    assert power.step(IDLE, OPTIONS, 720.0) is None, "the command still runs"
    assert power.step(GONE, OPTIONS, 721.0) is Action.ASLEEP
    assert power.command_ended(730.0, is_done=False) is None, "its connection broke"
    assert power.step(WANTED, OPTIONS, 731.0) is Action.WAKE


def test_a_machine_that_stays_awake_serves_on_and_is_tried_again_later() -> None:
    power = MachinePower()
    power.step(IDLE, OPTIONS, 0.0)
    assert power.step(IDLE, OPTIONS, 300.0) is Action.SLEEP
    assert power.command_ended(301.0, is_done=False) is Action.STAYED
    assert power.step(IDLE, OPTIONS, 600.0) is None
    assert power.step(IDLE, OPTIONS, 601.0) is Action.SLEEP
    assert power.command_ended(610.0, is_done=True) is None
    assert power.step(IDLE, OPTIONS, 609.0 + STILL_AWAKE_S) is None
    assert power.step(IDLE, OPTIONS, 610.0 + STILL_AWAKE_S) is Action.STAYED
    quick = replace(OPTIONS, after_idle_s=1.0)
    later = 610.0 + STILL_AWAKE_S + 2 * LEAST_DELAY_S
    assert power.step(IDLE, quick, later - 1.0) is None
    assert power.step(IDLE, quick, later) is Action.SLEEP


def test_without_a_command_a_machine_is_only_woken() -> None:
    power, options = MachinePower(), replace(OPTIONS, sleep_command=())
    power.step(IDLE, options, 0.0)
    assert power.step(IDLE, options, 1e6) is None


def test_a_server_that_loads_its_model_is_not_idle() -> None:
    power = MachinePower()
    power.step(IDLE, OPTIONS, 0.0)
    assert power.step(LOADING, OPTIONS, 299.0) is None
    assert power.step(IDLE, OPTIONS, 598.0) is None
    assert power.step(IDLE, OPTIONS, 599.0) is Action.SLEEP
