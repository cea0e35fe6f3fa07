"""Started agents first, beside the order of arrival: cached tokens, makespan, time of an agent."""

from dataclasses import replace
from itertools import groupby, islice
from operator import attrgetter
from random import Random
from typing import NamedTuple

from bench.result import Row, Section, at_least, at_most
from bench.simulation import traces
from bench.simulation.job import Job
from bench.simulation.pilot import UNBOUNDED, Pilot
from bench.simulation.run import mean, p99, pilot, quantile, run
from bench.simulation.server import Hardware
from extproc.core.queue.flow_order import ARRIVAL_ORDER, Discipline, QueueOrder

FLEET = tuple(Hardware(slots=4, cache_tokens=100_000, context_tokens=65_536) for _ in range(2))
BURST_RATE, STEADY_RATE = 10.0, 0.1
"""At which agents start: all at once, and nearly as many as the fleet can serve."""
PATIENT = QueueOrder(discipline=Discipline.STARTED_FIRST, max_overtaken_s=900.0)
USUAL = QueueOrder(discipline=Discipline.STARTED_FIRST)


class WithoutSessions(Pilot):
    """Clients that send no `x-session-id`: the core knows their sessions by their prompts alone."""

    def arrive(self, job: Job, now: float) -> None:
        job.session = None
        super().arrive(job, now)


COMPARED: dict[str, tuple[QueueOrder, type[Pilot]]] = {
    "first come": (ARRIVAL_ORDER, Pilot),
    "started first": (PATIENT, Pilot),
    "started first, by prompts": (PATIENT, WithoutSessions),
    "started first, passed for 30 s": (USUAL, Pilot),
}
"""Of a long burst all, otherwise the first two."""


class Played:
    """What one order made of a trace."""

    def __init__(self, trace: list[Job], order: QueueOrder, kind: type[Pilot], seed: int) -> None:
        of_agents = [list(jobs) for _, jobs in groupby(trace, key=attrgetter("session"))]
        options = replace(UNBOUNDED, order=order)
        scraped_s = 500.0 + 15.0 * len(of_agents)
        run(trace, FLEET, pilot(scraped_s, options, kind=kind), seed)
        self.cached = sum(job.cached_tokens for job in trace)
        self.share = self.cached / sum(job.prompt_tokens for job in trace)
        self.makespan_s = max(_ended_at(job) for job in trace)
        self.agents_s = [_ended_at(jobs[-1]) - jobs[0].arrived_at for jobs in of_agents]
        self.started_s = [
            time_s - jobs[0].waited_s for time_s, jobs in zip(self.agents_s, of_agents, strict=True)
        ]
        self.later_waits = [job.waited_s for jobs in of_agents for job in jobs[1:]]

    def row(self, what: str) -> Row:
        """All of it in one line."""
        value = (
            f"makespan {self.makespan_s:.0f} s; cached {self.share:.0%}; an agent "
            f"{_times(self.agents_s)}, from its first slot {_times(self.started_s)}; later calls "
            f"wait {mean(self.later_waits):.1f} s"
        )
        return Row(what=what, value=value)


def _ended_at(job: Job) -> float:
    assert job.ended_at is not None
    return job.ended_at


def _times(seconds: list[float]) -> str:
    return f"p50 {quantile(seconds, 0.5):.0f} s, p99 {p99(seconds):.0f} s"


def agents(scale: float = 1.0, seed: int = 1) -> Section:
    """What `started_first` does for agents, where too many start and where few wait."""
    count = int(150 * scale)
    rows: list[Row] = []
    burst = _compare(rows, f"burst of {count}", count, BURST_RATE, seed, len(COMPARED))
    rows += [
        at_least("burst: cached tokens / first come's", burst.cached, 2.0),
        at_most("burst: makespan / first come's", burst.makespan, 1.0),
        at_most("burst: p50 of an agent's time / first come's", burst.p50, 0.8),
        at_most("burst: p99 of an agent's time / first come's", burst.p99, 1.0),
    ]
    few = _compare(rows, f"burst of {count // 3}", count // 3, BURST_RATE, seed)
    rows.append(Row(what="shorter burst: makespan / first come's", value=f"{few.makespan:.2f}"))
    steady = _compare(rows, "one in 10 s", count, STEADY_RATE, seed)
    rows += [
        at_least("one in 10 s: cached tokens / first come's", steady.cached, 0.9),
        at_most("one in 10 s: makespan / first come's", steady.makespan, 1.05),
        at_most("one in 10 s: mean of an agent's time / first come's", steady.mean, 1.05),
    ]
    return Section(
        title="Sessions of agents",
        method=f"2 servers of 4 slots, each with a cache of 100,000 tokens; {count} agents of 5 to "
        "25 calls, whose prompts grow by the answer and about 500 tokens, with pauses of 1 to 20 s "
        f"after each answer. A new one is passed for {PATIENT.max_overtaken_s:g} s at most, or for "
        "the 30 s that are the default",
        rows=tuple(rows),
    )


class Ratios(NamedTuple):
    """What `started_first` made of a trace, over what the order of arrival did."""

    cached: float
    makespan: float
    mean: float
    p50: float
    p99: float


def _compare(
    rows: list[Row], what: str, count: int, rate: float, seed: int, orders: int = 2
) -> Ratios:
    """Play a trace in the first `orders` of those that are compared; adds a row for each."""
    played = []
    for who, (order, kind) in islice(COMPARED.items(), orders):
        played.append(Played(traces.agents(Random(seed), count, rate), order, kind, seed))
        rows.append(played[-1].row(f"{what}, {who}"))
    first_come, started = played[:2]
    return Ratios(
        started.cached / first_come.cached,
        started.makespan_s / first_come.makespan_s,
        mean(started.agents_s) / mean(first_come.agents_s),
        quantile(started.agents_s, 0.5) / quantile(first_come.agents_s, 0.5),
        p99(started.agents_s) / p99(first_come.agents_s),
    )
