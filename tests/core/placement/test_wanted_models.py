"""Claims about extproc/core/placement/wanted_models.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extproc.core.placement.machine import KeptState
from extproc.core.placement.swaps import Swap
from extproc.core.placement.wanted_models import PlacementError, WantedModels
from tests.core.placement.simulated import machine, set_state


def test_what_a_keeper_has_loaded_is_taken_over() -> None:
    """Also by a picker that has just started; what leaves, leaves, and all of it must fit."""
    one = machine("m", 25, a=10, b=10, c=10, d=10)
    set_state(one, "a", KeptState.LOADED, 0.0)
    set_state(one, "b", KeptState.UNLOADING, 0.0)
    set_state(one, "c", KeptState.WAITING, 0.0)
    set_state(one, "d", KeptState.WAITING, 0.0)
    models = WantedModels()
    models.adopt(one)
    assert models.wanted("m") == ("a", "c")
    models.remove(one, "c", "an operator unloaded it", 1.0)
    models.adopt(one)
    assert models.wanted("m") == ("a",), "it is taken over once"


def test_a_swap_is_one_step_and_each_of_its_changes_is_counted() -> None:
    one = machine("m", 15, a=10, b=10)
    models = WantedModels()
    models.add(one, "a", Swap(victims=(), cost_s=0.0), "first", 1.0)
    swap = Swap(victims=("a",), cost_s=0.0)
    out, into = models.add(one, "b", swap, "second", 2.0)
    assert models.wanted("m") == ("b",)
    assert (out.model, out.is_load, out.reason) == ("a", False, "it made way for b")
    assert (into.model, into.is_load, into.at) == ("b", True, 2.0)
    assert models.changes_total == {
        ("m", "a", "load"): 1,
        ("m", "a", "unload"): 1,
        ("m", "b", "load"): 1,
    }
    assert models.last_changes["m", "a"] == out
    assert models.remove(one, "a", "again", 3.0) == []
    assert models.last_changes["m", "a"] == out


def test_pins_must_fit_together_and_stay_when_the_machine_goes() -> None:
    one = machine("m", 15, a=10, b=10)
    models = WantedModels()
    models.pin(one, "a", is_pinned=True)
    with pytest.raises(PlacementError, match="b does not fit on m"):
        models.pin(one, "b", is_pinned=True)
    assert models.pinned("m") == {"a"}
    models.forget("m")
    assert models.pinned("m") == {"a"}
    models.adopt(replace(one, pinned=frozenset({"b"})))
    assert models.pinned("m") == {"a"}, "what was said here goes before what the keeper remembers"


def test_a_failed_model_is_tried_again_once() -> None:
    models = WantedModels()
    models.retry("m", "a")
    assert models.retried("m") == {"a"}
    assert models.take_retried("m") == ("a",)
    assert models.take_retried("m") == () and models.retried("m") == frozenset()
