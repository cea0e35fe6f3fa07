"""Claims about extproc/core/placement/placer.py: memory, bounds of waits, and no thrash."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.placement.demand import ModelDemand, ModelUse, ServerCounts
from extproc.core.placement.machine import KeptMachine, KeptState
from extproc.core.placement.placer import Placer
from extproc.core.placement.swaps import PlacementOptions, do_fit
from extproc.core.placement.wanted_models import PlacementError
from tests.core.placement.simulated import STEP_S, Simulation, machine, set_state

ONE_AT_A_TIME = {"a": 10, "b": 10, "c": 10}


def unused(one: KeptMachine, model: str) -> ModelUse:
    return ModelUse()


def waiting(count: int = 1, longest_s: float = 0.0) -> ModelDemand:
    return ModelDemand(waiting=count, longest_wait_s=longest_s, waited_s=count * longest_s / 2)


def simulation(load_s: float, service_s: float = 1.0, **options: float) -> Simulation:
    return Simulation(
        machines={"m": machine("m", 15, **ONE_AT_A_TIME)},
        options=PlacementOptions(**options),
        load_s=load_s,
        service_s=service_s,
    )


def test_the_first_request_loads_its_model_at_once() -> None:
    placer, one = Placer(), machine("m", 15, **ONE_AT_A_TIME)
    changes = placer.step({"m": one}, {"b": waiting()}, unused, 1.0)
    assert [(c.model, c.is_load) for c in changes] == [("b", True)]
    assert placer.wanted("m") == ("b",)
    assert placer.step({"m": one}, {"b": waiting()}, unused, 2.0) == [], "it is coming"
    assert placer.last_changes["m", "b"].reason == "1 request waited, the first for 0.0 s"


def test_nothing_happens_before_a_keeper_has_reported() -> None:
    placer, one = Placer(), machine("m", 15, **ONE_AT_A_TIME)
    for early in (replace(one, has_reported=False), replace(one, is_connected=False)):
        assert placer.step({"m": early}, {"b": waiting()}, unused, 1.0) == []


def test_an_idle_model_makes_way_at_once_and_the_longest_idle_first() -> None:
    one = machine("m", 25, a=10, b=10, c=10)
    for name in ("a", "b"):
        set_state(one, name, KeptState.LOADED, 0.0)
    idle = {"a": 5.0, "b": 9.0}

    def use(_: KeptMachine, model: str) -> ModelUse:
        return ModelUse(idle_s=idle.get(model, 0.0))

    placer = Placer()
    placer.step({"m": one}, {"c": waiting()}, use, 10.0)
    assert placer.wanted("m") == ("a", "c")
    assert placer.last_changes["m", "b"].reason == "it made way for c"


def test_a_router_has_room_for_a_number_of_models() -> None:
    """Their memory is not known, and counts nothing."""
    one = replace(machine("r", 0, a=0, b=0, c=0), is_router=True, max_models=2)
    placer = Placer()
    placer.step({"r": one}, {"a": waiting(), "b": waiting()}, unused, 1.0)
    assert placer.wanted("r") == ("a", "b") and not do_fit(one, ("a", "b", "c"))
    for name in ("a", "b"):
        set_state(one, name, KeptState.LOADED, 1.0)
    placer.step({"r": one}, {"c": waiting()}, unused, 5.0)
    assert len(placer.wanted("r")) == 2 and "c" in placer.wanted("r")
    unlimited = replace(one, max_models=0)
    assert do_fit(unlimited, ("a", "b", "c"))
    away = replace(one, is_connected=False)
    with pytest.raises(PlacementError, match="the router r does not answer"):
        placer.load(away, "a", {}, unused, 6.0)


def test_exclusions_hold_whatever_the_memory() -> None:
    one = machine("m", 100, a=1, b=1, c=1)
    models = dict(one.models)
    models["a"] = replace(models["a"], exclusive_with=frozenset({"b"}))
    models["b"] = replace(models["b"], exclusive_with=frozenset({"a"}))
    one = replace(one, models=models)
    for name in ("a", "c"):
        set_state(one, name, KeptState.LOADED, 0.0)
    placer = Placer()
    placer.step({"m": one}, {"b": waiting()}, unused, 10.0)
    assert set(placer.wanted("m")) == {"b", "c"}


def test_a_model_is_unloaded_after_its_time_without_requests() -> None:
    one = machine("m", 100, a=1)
    one = replace(one, models={"a": replace(one.models["a"], ttl_s=60.0)})
    set_state(one, "a", KeptState.LOADED, 0.0)
    placer = Placer()
    assert placer.step({"m": one}, {}, unused, 59.0) == []
    running = ModelUse(running=1, idle_s=0.0)
    assert placer.step({"m": one}, {}, lambda *_: running, 61.0) == []
    assert [c.is_load for c in placer.step({"m": one}, {}, unused, 61.0)] == [False]


def test_a_failed_model_is_left_alone_until_an_operator_wants_it() -> None:
    one = machine("m", 15, **ONE_AT_A_TIME)
    set_state(one, "a", KeptState.LOADED, 0.0)
    placer = Placer()
    placer.step({"m": one}, {}, unused, 1.0)
    set_state(one, "a", KeptState.FAILED, 2.0)
    placer.step({"m": one}, {"a": waiting(9, 9.0)}, unused, 3.0)
    assert placer.wanted("m") == ()
    placer.load(one, "a", {}, unused, 4.0)
    assert placer.wanted("m") == ("a",)
    placer.step({"m": one}, {}, unused, 4.1)
    assert placer.wanted("m") == ("a",), "its keeper has not heard of it yet"
    assert placer.take_retried("m") == ("a",) and placer.take_retried("m") == ()


def test_operators_load_unload_and_pin() -> None:
    one = machine("m", 25, a=10, b=10, c=10)
    set_state(one, "a", KeptState.LOADED, 0.0)
    set_state(one, "b", KeptState.LOADED, 0.0)
    placer = Placer()
    busy = ModelUse(running=2, idle_s=0.0)
    placer.pin(one, "a", is_pinned=True)
    placer.load(one, "c", {}, lambda *_: busy, 1.0)
    assert placer.wanted("m") == ("a", "c"), "work does not hold up an operator, a pin does"
    placer.pin(one, "c", is_pinned=True)
    with pytest.raises(PlacementError, match=r"pinned models \(a, c\)"):
        placer.load(one, "b", {}, unused, 2.0)
    with pytest.raises(PlacementError, match="other pinned models"):
        placer.pin(one, "b", is_pinned=True)
    placer.step({"m": one}, {"b": waiting(99, 999.0)}, unused, 999.0)
    assert placer.wanted("m") == ("a", "c")
    placer.unload(one, "a", 1000.0)
    assert placer.wanted("m") == ("c",) and placer.pinned("m") == {"c"}
    placer.pin(one, "c", is_pinned=False)
    gone = replace(one, is_connected=False)
    with pytest.raises(PlacementError, match="not connected"):
        placer.load(gone, "a", {}, unused, 1000.0)


def test_a_pinned_model_comes_back_with_its_machine() -> None:
    one = machine("m", 15, **ONE_AT_A_TIME)
    placer = Placer()
    placer.step({"m": one}, {}, unused, 0.0)
    placer.pin(one, "a", is_pinned=True)
    fresh = machine("m", 15, **ONE_AT_A_TIME)
    placer.step({"m": fresh}, {}, unused, 1.0)
    assert placer.wanted("m") == ("a",)


@pytest.mark.parametrize("load_s", [1.0, 5.0, 12.0])
@pytest.mark.parametrize("models", ["ab", "abc"])
def test_nobody_starves_and_the_machine_serves(load_s: float, models: str) -> None:
    """All models have endless work: each request waits for at most the bound beside its own queue,
    and swaps have at most their share."""
    run = simulation(load_s)
    k = len(models)
    while run.now < 1200:
        for model in models:
            if len(run.queues.get(model, ())) < 4:
                run.arrive(model)
        run.step()
    bound_s = 60.0 + k * (load_s + run.service_s)
    own_queue_s = 4 * run.service_s + 10 * STEP_S
    assert max(wait for _, wait in run.waits) <= bound_s + own_queue_s
    assert {model for model, _ in run.waits} == set(models)
    served_share = 1.0 - run.swapping_s / run.now
    least = 0.8 if 4 * load_s <= 60.0 / (k - 1) else 0.6
    drain_share = (run.service_s + 3 * STEP_S) / (5 * load_s)  # the end of running requests
    assert served_share >= least - drain_share - 0.02


def test_a_lonely_request_is_served_though_another_model_is_always_busy() -> None:
    """The measured fault of a router: 29.9 s, as long as the clients kept the other model busy."""
    run = simulation(5.0)
    is_lonely = False
    while run.now < 400:
        if len(run.queues.get("a", ())) < 8:
            run.arrive("a")
        if run.now >= 100 and not is_lonely:
            run.arrive("b")
            is_lonely = True
        run.step()
    waits = [wait for model, wait in run.waits if model == "b"]
    assert len(waits) == 1 and waits[0] <= 60 + 5.0 + run.service_s + 4 * STEP_S
    assert run.placer.changes_total.total() <= 7, "and nobody thrashes"


@settings(max_examples=60)
@given(st.data())
def test_what_is_wanted_always_fits(data: st.DataObject) -> None:
    """Over any demand, sizes, exclusions and states, also those that no keeper would report."""
    sizes = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    names = [f"m{number}" for number in range(len(sizes))]
    one = machine("m", 20, **dict(zip(names, sizes, strict=True)))
    pairs = data.draw(st.sets(st.tuples(st.sampled_from(names), st.sampled_from(names))))
    others: dict[str, set[str]] = {name: set() for name in names}
    for left, right in pairs:
        if left != right:
            others[left].add(right)
            others[right].add(left)
    models = {n: replace(m, exclusive_with=frozenset(others[n])) for n, m in one.models.items()}
    one = replace(one, models=models)
    placer, now = Placer(), 0.0
    for _ in range(data.draw(st.integers(1, 25))):
        now += data.draw(st.sampled_from([0.25, 5.0, 70.0]))
        for name in data.draw(st.sets(st.sampled_from(names))):
            set_state(one, name, data.draw(st.sampled_from(list(KeptState))), now)
        demands = {
            name: waiting(data.draw(st.integers(0, 3)), data.draw(st.sampled_from([0.0, 61.0])))
            for name in data.draw(st.sets(st.sampled_from(names)))
        }
        busy = data.draw(st.sets(st.sampled_from(names)))

        def use(_: KeptMachine, model: str, busy: set[str] = busy) -> ModelUse:
            return ModelUse(running=model in busy, idle_s=0.0 if model in busy else 99.0)

        name = data.draw(st.sampled_from(names))
        act = data.draw(st.sampled_from(["step", "load", "unload", "pin", "unpin"]))
        try:
            if act == "load":
                placer.load(one, name, demands, use, now)
            elif act == "unload":
                placer.unload(one, name, now)
            elif act in ("pin", "unpin"):
                placer.pin(one, name, is_pinned=act == "pin")
        except PlacementError:
            pass
        placer.step({"m": one}, demands, use, now)
        wanted = placer.wanted("m")
        assert do_fit(one, wanted)
        assert len(set(wanted)) == len(wanted)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.sampled_from([0.5, 3.0, 10.0]), st.floats(0.05, 1.5))
def test_random_traffic_over_two_machines(seed: int, load_s: float, rate: float) -> None:
    """Nothing is lost: when the arrivals end, every request is served, and memory held always."""
    run = Simulation(
        machines={
            "m": machine("m", 25, a=10, b=10, c=20),
            "n": machine("n", 15, b=10, c=15, d=5),
        },
        options=PlacementOptions(),
        load_s=load_s,
        service_s=0.7,
    )
    run.random.seed(seed)
    arrived = 0
    while run.now < 120 or any(run.queues.values()):
        if run.now < 120:
            for model in "abcd":
                if run.random.random() < rate * STEP_S:
                    run.arrive(model)
                    arrived += 1
        run.step()
        assert run.now < 1500, "somebody starves"
    assert len(run.waits) == arrived


def test_a_machine_that_is_gone_wants_nothing_and_keeps_its_pins() -> None:
    placer, one = Placer(), machine("m", 15, **ONE_AT_A_TIME)
    placer.pin(one, "a", is_pinned=True)
    placer.step({"m": one}, {}, unused, 1.0)
    assert placer.wanted("m") == ("a",)
    placer.forget("m")
    assert placer.wanted("m") == () and placer.pinned("m") == {"a"}


def test_pins_outlive_the_picker() -> None:
    """The keeper remembers them; what an operator of this picker decided goes first."""
    one = replace(machine("m", 25, **ONE_AT_A_TIME), pinned=frozenset({"b", "gone"}))
    placer = Placer()
    changes = placer.step({"m": one}, {}, unused, 1.0)
    assert placer.pinned("m") == {"b"} and [c.model for c in changes] == ["b"]
    placer.pin(one, "b", is_pinned=False)
    again = replace(one, statuses=dict(one.statuses))
    placer.step({"m": again}, {}, unused, 2.0)
    assert placer.pinned("m") == frozenset()
    full = replace(machine("m", 15, **ONE_AT_A_TIME), pinned=frozenset({"a", "b"}))
    small = Placer()
    small.step({"m": full}, {}, unused, 1.0)
    assert small.pinned("m") == frozenset(), "they do not fit any more"


def test_a_pinned_model_that_fits_no_more_is_not_loaded() -> None:
    """Its machine was started again with less memory, and another pinned one has it."""
    placer, one = Placer(), machine("m", 25, **ONE_AT_A_TIME)
    for name in ("a", "b"):
        placer.pin(one, name, is_pinned=True)
    small = replace(one, memory_mb=15)
    changes = placer.step({"m": small}, {}, unused, 1.0)
    assert [(change.model, change.is_load) for change in changes] == [("a", True)]
    assert placer.wanted("m") == ("a",) and placer.pinned("m") == {"a", "b"}


def pair(**models: int) -> dict[str, KeptMachine]:
    """Two machines with memory for one of these models each."""
    return {name: machine(name, 10, **models) for name in ("m1", "m2")}


def busy(_: KeptMachine, model: str) -> ModelUse:
    return ModelUse(running=1, idle_s=0.0)


def test_another_machine_loads_a_model_if_more_servers_are_wanted() -> None:
    """And no model with work leaves for it, whatever waits."""
    machines = pair(a=10, b=10)
    set_state(machines["m1"], "a", KeptState.LOADED, 0.0)
    demands = {"a": waiting(5, 50.0)}
    placer = Placer()
    for wanted in (0, 1):
        counts = {"a": ServerCounts(wanted=wanted)}
        assert placer.step(machines, demands, busy, 100.0, counts) == []
    (change,) = placer.step(machines, demands, busy, 101.0, {"a": ServerCounts(wanted=2)})
    assert (change.machine, change.model) == ("m2", "a")
    assert change.reason == "2 of its servers are wanted"
    other, others = Placer(), pair(a=10, b=10)
    set_state(others["m1"], "a", KeptState.LOADED, 0.0)
    set_state(others["m2"], "b", KeptState.LOADED, 0.0)
    assert other.step(others, demands, busy, 101.0, {"a": ServerCounts(wanted=2)}) == []


def test_servers_without_a_keeper_count() -> None:
    machines = pair(a=10)
    demands = {"a": waiting(5, 50.0)}
    counts = {"a": ServerCounts(wanted=2, elsewhere=2)}
    assert Placer().step(machines, demands, unused, 1.0, counts) == []
    counts = {"a": ServerCounts(wanted=2, elsewhere=1)}
    assert len(Placer().step(machines, demands, unused, 1.0, counts)) == 1


def test_as_many_as_are_wanted_without_requests_are_loaded_where_there_is_memory() -> None:
    """They displace nothing, and stay beyond their ttl_s; further ones do not."""
    machines = pair(a=10, b=10)
    for one in machines.values():
        one.models = {**one.models, "a": replace(one.models["a"], ttl_s=60.0)}
    set_state(machines["m1"], "b", KeptState.LOADED, 0.0)
    placer, counts = Placer(), {"a": ServerCounts(wanted=1, least=1)}
    (change,) = placer.step(machines, {}, unused, 1000.0, counts)
    assert (change.machine, change.model) == ("m2", "a")
    assert placer.wanted("m1") == ("b",)
    set_state(machines["m2"], "a", KeptState.LOADED, 1000.0)
    assert placer.step(machines, {}, unused, 2000.0, counts) == []
    (gone,) = placer.step(machines, {}, unused, 2000.0, {"a": ServerCounts(least=0)})
    assert (gone.machine, gone.is_load) == ("m2", False)


def test_a_server_that_is_not_needed_makes_way_at_once() -> None:
    """Although it is busy: others serve its model. The last one keeps its turn."""
    machines = pair(a=10, b=10)
    for one in machines.values():
        set_state(one, "a", KeptState.LOADED, 99.0, load_s=10.0)
    placer, demands = Placer(), {"b": waiting()}
    assert placer.step(machines, demands, busy, 100.0, {"a": ServerCounts(wanted=2)}) == []
    changes = placer.step(machines, demands, busy, 100.0, {"a": ServerCounts(wanted=1)})
    assert [(one.model, one.is_load) for one in changes] == [("a", False), ("b", True)]
    still = [name for name in machines if "a" in placer.wanted(name)]
    assert len(still) == 1
    set_state(machines[changes[0].machine], "a", KeptState.UNLOADED, 100.0)
    set_state(machines[changes[0].machine], "b", KeptState.LOADED, 100.0)
    again = placer.step(machines, {"b": waiting(9)}, busy, 101.0, {"b": ServerCounts(wanted=2)})
    assert again == [], "a has work on its only machine"


def test_a_prompt_is_loaded_for_where_its_slots_are_long_enough() -> None:
    """Although another machine has the model loaded, with a shorter context."""
    machines = pair(a=10, b=10)
    for one, tokens in zip(machines.values(), (1024, 8192), strict=True):
        one.models = {**one.models, "a": replace(one.models["a"], context_tokens=tokens)}
    set_state(machines["m1"], "a", KeptState.LOADED, 0.0)
    set_state(machines["m2"], "b", KeptState.LOADED, 0.0)
    placer = Placer()
    assert placer.step(machines, {"a": waiting()}, unused, 10.0) == []
    long = {"a": replace(waiting(), context_tokens=8192)}
    placer.step(machines, long, unused, 10.0)
    assert placer.wanted("m2") == ("a",) and placer.wanted("m1") == ("a",)
    too_long = {"a": replace(waiting(), context_tokens=16_384)}
    assert Placer().step(machines, too_long, unused, 10.0) == []
