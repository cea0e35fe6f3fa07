"""Fleets that the scenarios share, and who is compared on them."""

from collections.abc import Sequence

from bench.simulation.balancers import (
    CentralLine,
    LeastConnections,
    PowerOfTwo,
    ProxyLine,
    RoundRobin,
    WeightedLeastConnections,
    one_limit,
)
from bench.simulation.pilot import Pilot
from bench.simulation.run import MakeBalancer
from bench.simulation.server import Hardware
from extproc.core.scheduler.dispatcher import DispatcherOptions

UNEVEN = tuple(Hardware(slots=slots) for slots in (1, 1, 2, 2, 4, 4, 8, 8))
EVEN = tuple(Hardware(slots=4) for _ in range(8))
SERVICE_S = 4.0


def slots_of(fleet: Sequence[Hardware]) -> int:
    """How many slots they have together."""
    return sum(hardware.slots for hardware in fleet)


def pilot(
    until: float = 0.0,
    options: DispatcherOptions | None = None,
    *,
    is_blind: bool = False,
    kind: type[Pilot] = Pilot,
) -> MakeBalancer:
    """The real core as a balancer; scrapes end at `until`."""
    return lambda servers, random, clock: kind(
        servers, random, clock, options, is_blind=is_blind, scrapes_until=until
    )


BALANCERS: dict[str, MakeBalancer] = {
    "round robin": lambda servers, random, _: RoundRobin(servers, random),
    "least connections": lambda servers, random, _: LeastConnections(servers, random),
    "power of two choices": lambda servers, random, _: PowerOfTwo(servers, random),
    "weighted least connections": lambda servers, random, _: WeightedLeastConnections(
        servers, random
    ),
    "a proxy's queue, one limit for all": lambda servers, random, _: one_limit(servers, random),
    "a proxy's queue, manual limits": lambda servers, random, _: ProxyLine(servers, random),
    "oracle": lambda servers, random, _: CentralLine(servers, random),
}
