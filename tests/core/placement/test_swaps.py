"""Claims about extproc/core/placement/swaps.py: who may leave for whom, and when."""

from __future__ import annotations

import pytest

from extproc.core.placement.demand import ModelDemand, ModelUse
from extproc.core.placement.machine import KeptState
from extproc.core.placement.swaps import (
    MachineView,
    PlacementOptions,
    find_swap,
    turn_s,
    wait_limit_s,
)
from tests.core.placement.simulated import machine, set_state

BUSY = ModelUse(running=1, idle_s=0.0)
OPTIONS = PlacementOptions()


def view(*wanted: str, load_s: float = 5.0, pinned: str = "", **uses: ModelUse) -> MachineView:
    one = machine("m", 20, a=10, b=10, c=20, d=5)
    for name in wanted:
        set_state(one, name, KeptState.LOADED, 0.0)
    return MachineView(
        machine=one,
        wanted=wanted,
        pinned=frozenset(pinned),
        uses=uses,
        loads_s=dict.fromkeys("abcd", load_s),
    )


def demand(longest_s: float, count: int = 1) -> ModelDemand:
    return ModelDemand(waiting=count, longest_wait_s=longest_s, waited_s=longest_s * count)


def test_turns_are_four_loads_and_never_longer_than_the_limit() -> None:
    assert turn_s(view("a"), "a", 60.0, OPTIONS) == pytest.approx(20.0)
    assert turn_s(view("a", load_s=30.0), "a", 60.0, OPTIONS) == 60.0


@pytest.mark.parametrize(
    ("models", "limit_s"), [("a", 60.0), ("ac", 60.0), ("abc", 30.0), ("abd", 60.0), ("abcd", 20.0)]
)
def test_the_limit_is_shared_by_the_models_with_work(models: str, limit_s: float) -> None:
    """And by those that fit at once: a, b and d have two places."""
    demands = {name: demand(1.0) for name in models}
    assert wait_limit_s(view(), demands, OPTIONS) == limit_s


def test_a_model_with_work_leaves_after_its_turn_for_who_has_waited() -> None:
    busy = view("a", a=BUSY)
    soon, late = {"c": demand(1.0)}, {"c": demand(60.0)}
    assert find_swap(busy, "c", late, OPTIONS, 19.0) is None, "its turn"
    assert find_swap(busy, "c", soon, OPTIONS, 21.0) is None, "nobody has waited long enough"
    swap = find_swap(busy, "c", late, OPTIONS, 21.0)
    assert swap is not None and swap.victims == ("a",) and swap.displaces_work
    many = {"c": demand(1.0, count=10)}
    assert find_swap(busy, "c", many, OPTIONS, 21.0) is not None, "ten seconds are what a loses"


def test_only_as_many_leave_as_must() -> None:
    """The idle before the busy, and none that could stay."""
    two = view("a", "b", a=BUSY)
    swap = find_swap(two, "d", {"d": demand(0.0)}, OPTIONS, 100.0)
    assert swap is not None and swap.victims == ("b",) and not swap.displaces_work
    fits = find_swap(view("a"), "b", {"b": demand(0.0)}, OPTIONS, 0.0)
    assert fits is not None and fits.victims == ()


def test_pinned_and_loading_models_stay() -> None:
    demands = {"c": demand(999.0)}
    assert find_swap(view("a", pinned="a"), "c", demands, OPTIONS, 999.0) is None
    loading = view("a")
    set_state(loading.machine, "a", KeptState.LOADING, 0.0)
    assert find_swap(loading, "c", demands, OPTIONS, 999.0) is None


def test_a_model_that_was_just_used_is_not_idle() -> None:
    used = view("a", a=ModelUse(idle_s=0.5))
    assert find_swap(used, "c", {"c": demand(0.0)}, OPTIONS, 100.0) is None


def test_a_small_one_stays_if_the_large_one_must_leave_anyway() -> None:
    """The small one is idle and would leave first, but its memory is not enough."""
    one = machine("m", 20, small=5, large=15, new=15)
    for name in ("small", "large"):
        set_state(one, name, KeptState.LOADED, 0.0)
    both = MachineView(
        machine=one,
        wanted=("small", "large"),
        pinned=frozenset(),
        uses={"large": ModelUse(idle_s=50.0), "small": ModelUse(idle_s=90.0)},
        loads_s={},
    )
    swap = find_swap(both, "new", {"new": demand(0.0)}, OPTIONS, 100.0)
    assert swap is not None and swap.victims == ("large",)
