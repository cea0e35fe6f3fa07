"""One run: a trace through a balancer over a fleet, and what can be said of it afterwards."""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import NamedTuple

from bench.simulation.balancers import Balancer
from bench.simulation.clock import Clock
from bench.simulation.job import Job
from bench.simulation.server import Hardware, Server


class Outage(NamedTuple):
    """A server dies and comes back."""

    server: int
    begins_at: float
    ends_at: float


MakeBalancer = Callable[[Sequence[Server], Random, Clock], Balancer]


def run(
    trace: Iterable[Job],
    hardware: Sequence[Hardware],
    make: MakeBalancer,
    seed: int = 1,
    outages: Iterable[Outage] = (),
) -> tuple[list[Job], list[Server]]:
    """Play the whole trace; returns its jobs with their times, and the servers."""
    clock = Clock()
    servers = [Server(index, one, clock) for index, one in enumerate(hardware)]
    jobs = list(trace)
    balancer = make(servers, Random(seed), clock)
    for server in servers:
        server.on_lost, server.on_return = balancer.lost, balancer.returned
    for outage in outages:
        clock.at(outage.begins_at, servers[outage.server].die)
        clock.at(outage.ends_at, servers[outage.server].come_back)
    for job in jobs:
        clock.at(job.arrived_at, lambda now, job=job: balancer.arrive(job, now))  # type: ignore[misc]
    clock.run()
    return jobs, servers


def mean(numbers: Iterable[float]) -> float:
    values = list(numbers)
    return sum(values) / len(values) if values else 0.0


def quantile(numbers: Iterable[float], share: float) -> float:
    """The value below which that share of the numbers lies."""
    values = sorted(numbers)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
