"""Claims about extproc/core/placement/load_record.py."""

from __future__ import annotations

from extproc.core.placement.load_record import LoadWatch
from extproc.core.placement.machine import KeptState
from extproc.core.placement.wanted_models import Change
from tests.core.placement.simulated import machine, set_state


def change(model: str, at: float, *, is_load: bool = True) -> Change:
    return Change(machine="m", model=model, is_load=is_load, reason="why", at=at)


def test_a_swap_has_the_time_of_the_drain_and_of_the_load() -> None:
    watch, one = LoadWatch(), machine("m", 15, a=10, b=10)
    set_state(one, "b", KeptState.UNLOADED, 5.0)
    watch.decided([change("a", 10.0, is_load=False), change("b", 10.0)])
    for state, at in ((KeptState.WAITING, 10.1), (KeptState.LOADING, 13.0)):
        set_state(one, "b", state, at)
        assert watch.observed(one) == []
    set_state(one, "b", KeptState.LOADED, 20.0)
    (record,) = watch.observed(one)
    assert (record.machine, record.model, record.displaced) == ("m", "b", ("a",))
    assert (record.drain_s, record.load_s, record.reason) == (3.0, 7.0, "why")
    assert record.problem == "" and watch.observed(one) == [] and len(watch) == 0


def test_a_load_that_fails_says_why() -> None:
    watch, one = LoadWatch(), machine("m", 15, a=10, b=10)
    watch.decided([change("a", 10.0)])
    set_state(one, "a", KeptState.LOADING, 10.5)
    assert watch.observed(one) == []
    set_state(one, "a", KeptState.RESTARTING, 11.0)
    assert watch.observed(one) == []
    set_state(one, "a", KeptState.FAILED, 12.0, problem="exit status 3")
    (record,) = watch.observed(one)
    assert record.problem == "exit status 3" and record.displaced == ()


def test_an_old_state_ends_nothing_and_a_change_of_mind_does() -> None:
    """Nor does a machine that is gone."""
    watch, one = LoadWatch(), machine("m", 15, a=10, b=10)
    set_state(one, "a", KeptState.FAILED, 5.0)
    watch.decided([change("a", 10.0), change("b", 10.0)])
    assert watch.observed(one) == [] and len(watch) == 2
    watch.decided([change("a", 11.0, is_load=False)])
    assert len(watch) == 1
    watch.forgotten("m")
    assert len(watch) == 0


def test_a_load_that_was_too_short_to_be_seen() -> None:
    watch, one = LoadWatch(), machine("m", 15, a=10)
    watch.decided([change("a", 10.0)])
    set_state(one, "a", KeptState.LOADED, 12.0, load_s=0.5)
    (record,) = watch.observed(one)
    assert (record.drain_s, record.load_s) == (1.5, 0.5)


def test_another_machine_or_model_ends_no_load() -> None:
    watch, other = LoadWatch(), machine("n", 15, a=10)
    watch.decided([change("a", 10.0)])
    set_state(other, "a", KeptState.LOADED, 12.0)
    assert watch.observed(other) == []
    assert watch.observed(machine("m", 15, b=10)) == []
    one = machine("m", 15, a=10)
    set_state(one, "a", KeptState.LOADED, 12.0)
    assert [record.model for record in watch.observed(one)] == ["a"]
