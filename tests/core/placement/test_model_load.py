"""Claims about extproc/core/placement/model_load.py: a load in words, and when it is ready."""

from __future__ import annotations

from collections.abc import Mapping

from extproc.core.address import Address
from extproc.core.placement.machine import KeptMachine, KeptState
from extproc.core.placement.model_load import (
    LEAST_LEFT_S,
    ModelLoad,
    any_of,
    first_load,
    load_estimate_s,
)
from extproc.core.placement.swaps import ASSUMED_LOAD_S
from tests.core.placement.simulated import machine, set_state


def test_the_time_that_is_left_is_named_once_it_is_known() -> None:
    load = ModelLoad(model="qwen", where="gpu-1", ready_at=22.4)
    assert load.note(10.0) == "waits for qwen to be loaded at gpu-1, about 12 s"
    assert load.note(30.0) == "waits for qwen to be loaded at gpu-1, about 0 s"
    assert load.subject == "waits for qwen to be loaded at gpu-1"
    later = ModelLoad(model="qwen", where="gpu-1", is_delayed=True)
    assert later.note(10.0) == later.subject
    assert later.subject.endswith("at gpu-1 when others leave memory for it")
    wake = ModelLoad(model="qwen", where="gpu-1", ready_at=50.0, is_wake=True)
    assert wake.note(10.0) == "waits for gpu-1 to wake, about 40 s"


def test_many_machines_are_counted() -> None:
    assert any_of(["a"]) == "a"
    assert any_of(["a", "b", "c"]) == "a or b or c"
    assert any_of(["a", "b", "c", "d"]) == "one of 4 machines"


def test_the_load_that_is_ready_first_is_the_one_to_wait_for() -> None:
    """What took long is expected to take a little longer; a loaded model is no load, but its
    server is still to be seen."""
    here, there = (machine(name, 15, a=10) for name in ("m", "n"))
    machines = {"m": here, "n": there}
    wanted: dict[str, tuple[str, ...]] = {"m": (), "n": ()}
    new: set[Address] = set()

    def first_of(machines: Mapping[str, KeptMachine], now: float) -> ModelLoad | None:
        return first_load("a", machines, wanted.__getitem__, new.__contains__, now)

    assert first_of(machines, 1.0) is None, "nobody loads it"
    wanted = {"m": ("a",), "n": ("a",)}
    set_state(here, "a", KeptState.LOADING, 1.0, load_s=20.0)
    set_state(there, "a", KeptState.WAITING, 1.0, load_s=5.0)
    first = first_of(machines, 2.0)
    assert first is not None and (first.where, first.ready_at) == ("n", 7.0)
    late = first_of({"m": here}, 30.0)
    assert late is not None and late.ready_at == 30.0 + LEAST_LEFT_S
    set_state(there, "a", KeptState.LOADED, 9.0)
    assert first_of(machines, 9.0) is None
    new.add(there.models["a"].address)
    seen_soon = first_of(machines, 9.0)
    assert seen_soon is not None and seen_soon.ready_at == 9.0 + LEAST_LEFT_S


def test_a_load_takes_as_long_as_the_last_one_here_or_elsewhere() -> None:
    here, there = (machine(name, 15, a=10) for name in ("m", "n"))
    machines = {"m": here, "n": there}
    assert load_estimate_s("a", here, machines) == ASSUMED_LOAD_S
    set_state(there, "a", KeptState.LOADED, 1.0, load_s=5.0)
    assert load_estimate_s("a", here, machines) == 5.0
    set_state(here, "a", KeptState.LOADED, 1.0, load_s=7.0)
    assert load_estimate_s("a", here, machines) == 7.0
