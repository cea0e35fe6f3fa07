"""Claims about extproc/core/placement/machine.py: which states hold memory."""

from __future__ import annotations

from extproc.core.placement.machine import KeptState
from tests.core.placement.simulated import machine, set_state


def test_a_new_machine_has_nothing_loaded() -> None:
    one = machine("m", 30, a=10, b=20)
    assert {status.state for status in one.statuses.values()} == {KeptState.UNLOADED}
    assert one.used_mb == 0


def test_what_starts_runs_or_leaves_holds_memory() -> None:
    one = machine("m", 30, a=10)
    held = set()
    for state in KeptState:
        set_state(one, "a", state, 1.0)
        if one.used_mb:
            held.add(state)
    assert held == {
        *(KeptState.LOADING, KeptState.LOADED, KeptState.UNLOADING, KeptState.RESTARTING),
    }


def test_models_that_hold_memory_are_counted() -> None:
    one = machine("m", 30, a=10, b=10, c=10)
    set_state(one, "a", KeptState.LOADED, 1.0)
    set_state(one, "b", KeptState.LOADING, 1.0)
    set_state(one, "c", KeptState.WAITING, 1.0)
    assert (one.used_models, one.used_mb) == (2, 20)
