"""Which models are loaded: Coxswain's placer beside llama-swap's, llama.cpp's and an oracle."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from bench.result import Row, Section, at_most
from bench.simulation.run import mean, quantile
from bench.simulation.swap_machine import SwapJob, SwapMachine, SwapModel
from bench.simulation.swap_policies import (
    Coxswain,
    FirstCome,
    Foresight,
    LeastRecent,
    RentOrBuy,
    SwapPolicy,
)
from extproc.core.placement.swaps import PlacementOptions

OPTIONS = PlacementOptions()
OF_ORACLE = 1.3
"""The target: the mean wait over that of the oracle."""
LONGEST_SERVICE_S = 30.0


class Case(NamedTuple):
    """`share` of the machine's slots is asked for; `burst` requests come at once on average."""

    name: str
    models: int
    memory: int
    share: float
    burst: float


CASES = (
    Case("3 models, memory for 1", 3, 4, 0.15, 1.0),
    Case("3 models in bursts, memory for 1", 3, 4, 0.25, 8.0),
    Case("10 models, memory for 3", 10, 12, 0.25, 1.0),
    Case("10 models in bursts, memory for 3", 10, 12, 0.3, 8.0),
    Case("40 models, memory for 10", 40, 40, 0.2, 1.0),
    Case("40 models in bursts, memory for 10", 40, 40, 0.25, 8.0),
)


def swaps(scale: float = 1.0, seed: int = 1) -> Section:
    """The waits of each policy on each trace."""
    count = int(200 * scale)
    rows: list[Row] = []
    for case in CASES:
        models, jobs = trace(case, count, Random(seed))
        played = {name: play(models, case, jobs, make) for name, make in POLICIES.items()}
        ours = played["Coxswain"]
        oracle = min(
            (ours, *(play(models, case, jobs, make) for make in HINDSIGHT)),
            key=lambda one: mean(one.waits),
        )
        played["oracle"] = oracle
        rows += [Row(what=f"{case.name}: {name}", value=said(one)) for name, one in played.items()]
        ratio = mean(ours.waits) / max(1e-9, mean(oracle.waits))
        rows.append(at_most(f"{case.name}: mean / the oracle's", ratio, OF_ORACLE))
        over = max(ours.waits) - bound_s(case, models)
        rows.append(at_most(f"{case.name}: longest wait over the bound", max(0.0, over), 0, " s"))
    return Section(
        title="Loads and swaps of models",
        method=f"one machine, {count} requests a trace, popularity by Zipf, loads of 5 to 60 s by "
        "size, 4 slots a model, services of 2 to 30 s; each policy gets the same trace. The oracle "
        "is the best for each trace, in hindsight, of these and of policies that know what will "
        "come or swap earlier or later; nothing bounds its waits. The bound is "
        f"swap.max_wait_s ({OPTIONS.max_wait_s:g} s) plus, for each of the models that take turns, "
        "the end of what runs and a load",
        rows=tuple(rows),
    )


POLICIES: dict[str, Callable[[SwapMachine], SwapPolicy]] = {
    "first come (llama-swap)": lambda _: FirstCome(),
    "least recently used (llama.cpp)": lambda _: LeastRecent(),
    "Coxswain": lambda machine: Coxswain(machine, OPTIONS),
}
HINDSIGHT: tuple[Callable[[SwapMachine], SwapPolicy], ...] = (
    lambda _: LeastRecent(),
    lambda _: RentOrBuy(0.25),
    lambda _: RentOrBuy(0.5),
    lambda _: RentOrBuy(1.0),
    lambda _: RentOrBuy(2.0),
    lambda _: Foresight(LeastRecent()),
    lambda _: Foresight(RentOrBuy(2.0)),
)


def trace(case: Case, count: int, random: Random) -> tuple[list[SwapModel], list[SwapJob]]:
    """The models, and requests by time. Popular models are of any size."""
    models = []
    for _ in range(case.models):
        memory = random.choice([2, 3, 4]) if case.memory < 40 else random.choice([2, 4, 6])
        models.append(SwapModel(memory=memory, load_s=random.uniform(5, 60), slots=4))
    weights = [1.0 / (rank + 1) ** 1.1 for rank in range(case.models)]
    held = case.memory / mean([model.memory for model in models])
    mean_service_s = 8.0
    rate = case.share * held * 4 / mean_service_s
    jobs: list[SwapJob] = []
    now = 0.0
    while len(jobs) < count:
        size = 1 if case.burst <= 1 else min(40, 1 + int(random.expovariate(1 / case.burst)))
        now += random.expovariate(rate / case.burst)
        model = random.choices(range(case.models), weights)[0]
        for _ in range(size):
            service_s = min(LONGEST_SERVICE_S, 2.0 + random.expovariate(1 / (mean_service_s - 2.0)))
            jobs.append(SwapJob(now, model, service_s))
    return models, jobs


def play(
    models: list[SwapModel],
    case: Case,
    jobs: list[SwapJob],
    make: Callable[[SwapMachine], SwapPolicy],
) -> SwapMachine:
    """The machine after the last request has begun."""
    machine = SwapMachine(models, case.memory, jobs)
    policy = make(machine)
    machine.is_first_come = policy.is_first_come
    while not machine.is_over:
        is_going_on = machine.step(policy.tick_s)
        assert is_going_on, "what waits is served in the end"
        machine.want(policy.decide(machine))
    return machine


def bound_s(case: Case, models: list[SwapModel]) -> float:
    """Waits for a slot of a loaded model are part of the measured waits: bursts add a round."""
    turns = min(case.models, 8)
    longest = max(model.load_s for model in models) + LONGEST_SERVICE_S
    return OPTIONS.max_wait_s + turns * longest


def said(one: SwapMachine) -> str:
    return (
        f"mean {mean(one.waits):.1f} s, p99 {quantile(one.waits, 0.99):.0f} s, "
        f"max {max(one.waits):.0f} s, {one.swaps} loads"
    )
