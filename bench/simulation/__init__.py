"""A discrete-event simulation of fleets, in which the real core decides beside simple balancers."""

from collections.abc import Callable
from functools import partial

from bench import load
from bench.result import Measure, Say, Section
from bench.simulation.agents import agents
from bench.simulation.caches import cache_sizes, chats, hot_prefix
from bench.simulation.overflows import shared_context
from bench.simulation.sizes import sizes
from bench.simulation.waiting import failures, foresight, overload, tenants, uneven

QUICK_SCALE = 0.5
"""Of the traces' lengths: in shorter ones too little has been learned for the targets."""
SCENARIOS: dict[str, Callable[[float, int], Section]] = {
    "uneven": uneven,
    "chats": chats,
    "caches": cache_sizes,
    "hot": hot_prefix,
    "agents": agents,
    "foresight": foresight,
    "failures": failures,
    "overload": overload,
    "tenants": tenants,
    "sizes": sizes,
    "shared-context": shared_context,
}
"""The claims, each as a scenario: a fleet, a trace, who is compared, and what must hold."""


async def _play(name: str, say: Say) -> Section:
    say(f"simulation: {name}")
    return SCENARIOS[name](QUICK_SCALE if load.PACE < 1.0 else 1.0, 1)


BENCHMARKS: dict[str, Measure] = {f"simulated-{name}": partial(_play, name) for name in SCENARIOS}
"""Each scenario as a benchmark among the others."""
