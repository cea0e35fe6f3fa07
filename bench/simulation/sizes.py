"""Shortest expected first, with sizes that are learned from the same trace, beside first come."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from bench.result import Row, Section, at_least, at_most
from bench.simulation import size_traces
from bench.simulation.balancers import CentralLine
from bench.simulation.job import Job
from bench.simulation.pilot import UNBOUNDED, PassingPilot
from bench.simulation.run import UNEVEN, MakeBalancer, mean, p99, pilot, run, said, slots_of
from bench.simulation.server import Hardware
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Objective, Objectives
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.scheduler.dispatcher import DispatcherOptions

LOADS = (0.9, 0.97)
FLEET = tuple(
    Hardware(slots=one.slots, slowdown=0.0, cache_tokens=0, context_tokens=65_536) for one in UNEVEN
)
OBJECTIVES = Objectives(
    by_name={service.name: Objective(name=service.name) for service in size_traces.SERVICES}
)
FIRST_COME, SHORTEST = QueueOrder(), QueueOrder(discipline=Discipline.SHORTEST_EXPECTED)
Trace = Callable[[Random], list[Job]]


def sizes(scale: float = 1.0, seed: int = 1, loads: Sequence[float] = LOADS) -> Section:
    """Waits on each trace at each load, and what a lie gains."""
    count = int(30_000 * scale)
    rows: list[Row] = []
    signals: dict[str, Trace] = {
        "by prompt": lambda random: size_traces.with_signal(random, count, by_objective=False),
        "by objective": lambda random: size_traces.with_signal(random, count, by_objective=True),
    }
    for load in loads:
        for name, make in signals.items():
            oracle, _, shortest = _compare(make, load, seed, rows, name)
            of_first = mean(shortest.waits) / mean(oracle.waits)
            rows.append(at_most(f"{name}, {load}: mean / the oracle's", of_first, 0.6))
            if load == 0.9:
                late = p99(shortest.waits) / p99(oracle.waits)
                rows.append(at_most(f"{name}, {load}: p99 / the oracle's", late, 1.2))
            rows.append(at_most(f"{name}, {load}: passed after the bound", shortest.passed_late, 0))
    for load in loads:
        _, first_come, shortest = _compare(
            lambda random: size_traces.without_signal(random, count),
            load,
            seed,
            rows,
            "no signal",
        )
        for what, of in (("mean", mean), ("p99", p99)):
            ratio = of(shortest.waits) / of(first_come.waits)
            rows.append(at_most(f"no signal, {load}: {what} / first come's", ratio, 1.02))
    rows += _gain_by_lying(count, seed)
    return Section(
        title="Shortest expected first",
        method=f"servers of 1, 1, 2, 2, 4, 4, 8, 8 slots without caches, {count:,} requests each; "
        "the oracle is first come, first served without any loss of time; sizes are learned from "
        "the same trace. With a signal: chats, summaries, embeddings and code, which differ in "
        "path, prompt and max_tokens, or also in objectives of equal weight; without one: the same "
        "features at random. Passed after the bound: requests that one of their flow passed after "
        f"{SHORTEST.max_overtaken_s:g} s in the queue",
        rows=tuple(rows),
    )


def _gain_by_lying(count: int, seed: int) -> list[Row]:
    """What a tenant gains whose servers ignore the `max_tokens: 1` of half of its code."""
    marked, others = [], []
    for is_lying in (False, True):
        random = Random(seed)
        jobs = size_traces.with_liar(random, count, is_lying=is_lying)
        size_traces.arrive(random, jobs, 0.9, FLEET[0], slots_of(FLEET))
        run(jobs, FLEET, pilot(jobs[-1].arrived_at, _options(SHORTEST)), seed)
        marked.append(mean(job.waited_s for job in jobs if "marked" in job.notes))
        others.append(mean(job.waited_s for job in jobs if job.tenant != size_traces.LIAR))
    return [
        at_least("0.9: mean wait of requests with a lie / without", marked[1] / marked[0], 0.95),
        at_most("0.9: mean wait of other tenants / without the lie", others[1] / others[0], 1.05),
    ]


class Waits:
    """What one order made of a trace."""

    def __init__(self, jobs: list[Job]) -> None:
        self.waits = [job.waited_s for job in jobs]
        self.passed_late = sum(job.notes.get("passed_late", 0.0) for job in jobs)


def _compare(
    make: Trace, load: float, seed: int, rows: list[Row], name: str
) -> tuple[Waits, Waits, Waits]:
    found = []
    for who in ("oracle", "first come", "shortest expected"):
        random = Random(seed)
        jobs = make(random)
        size_traces.arrive(random, jobs, load, FLEET[0], slots_of(FLEET))
        balancer: MakeBalancer = CentralLine
        if who != "oracle":
            options = _options(FIRST_COME if who == "first come" else SHORTEST)
            balancer = pilot(jobs[-1].arrived_at, options, kind=PassingPilot)
        found.append(Waits(run(jobs, FLEET, balancer, seed)[0]))
        rows.append(Row(what=f"{name}, {load}: {who}", value=said(found[-1].waits)))
    return found[0], found[1], found[2]


def _options(order: QueueOrder) -> DispatcherOptions:
    return replace(UNBOUNDED, resolver=ResolverOptions(objectives=OBJECTIVES), order=order)
