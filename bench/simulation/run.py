"""Runs of a trace through a balancer over a fleet, and what can be said of them afterwards."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from random import Random
from typing import NamedTuple

from bench.simulation.balancers import (
    Balancer,
    CentralLine,
    LeastConnections,
    PowerOfTwo,
    ProxyLine,
    RoundRobin,
    WeightedLeastConnections,
    one_limit,
)
from bench.simulation.job import Job
from bench.simulation.pilot import Pilot
from bench.simulation.server import Clock, Hardware, Server
from extproc.core.scheduler.dispatcher import DispatcherOptions

UNEVEN = tuple(Hardware(slots=slots) for slots in (1, 1, 2, 2, 4, 4, 8, 8))
EVEN = tuple(Hardware(slots=4) for _ in range(8))


def slots_of(fleet: Sequence[Hardware]) -> int:
    """How many slots they have together."""
    return sum(hardware.slots for hardware in fleet)


MakeBalancer = Callable[[Sequence[Server], Random], Balancer]


def pilot(
    until: float = 0.0,
    options: DispatcherOptions | None = None,
    *,
    is_blind: bool = False,
    kind: type[Pilot] = Pilot,
) -> MakeBalancer:
    """The real core as a balancer; scrapes end at `until`."""
    return lambda servers, random: kind(
        servers, random, options, is_blind=is_blind, scrapes_until=until
    )


BALANCERS: dict[str, MakeBalancer] = {
    "round robin": RoundRobin,
    "least connections": LeastConnections,
    "power of two choices": PowerOfTwo,
    "weighted least connections": WeightedLeastConnections,
    "a proxy's queue, one limit for all": one_limit,
    "a proxy's queue, manual limits": ProxyLine,
    "oracle": CentralLine,
}
"""Who is compared with it."""


class Outage(NamedTuple):
    """A server dies and comes back."""

    server: int
    begins_at: float
    ends_at: float


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
    balancer = make(servers, Random(seed))
    for server in servers:
        server.on_lost, server.on_return = balancer.lost, balancer.returned
    for outage in outages:
        clock.at(outage.begins_at, servers[outage.server].die)
        clock.at(outage.ends_at, servers[outage.server].come_back)
    for server in servers:
        server.on_end = partial(_ended, server.on_end, balancer, clock)
    for job in jobs:
        if job.arrived_at < inf:
            clock.at(job.arrived_at, partial(balancer.arrive, job))
    clock.run()
    return jobs, servers


def _ended(
    on_end: Callable[[Job, float], None], balancer: Balancer, clock: Clock, job: Job, now: float
) -> None:
    """Report it to the balancer, and let the job that follows arrive after its pause."""
    on_end(job, now)
    if job.follower is not None:
        job.follower.arrived_at = now + job.pause_s
        clock.at(job.follower.arrived_at, partial(balancer.arrive, job.follower))


def mean(numbers: Iterable[float]) -> float:
    values = list(numbers)
    return sum(values) / len(values) if values else 0.0


def quantile(numbers: Iterable[float], share: float) -> float:
    """The value below which that share of the numbers lies."""
    values = sorted(numbers)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def p99(numbers: Iterable[float]) -> float:
    return quantile(numbers, 0.99)


def said(seconds: Iterable[float]) -> str:
    """Their mean and 99th percentile in words."""
    values = list(seconds)
    return f"mean {mean(values):.2f} s, p99 {p99(values):.2f} s"
