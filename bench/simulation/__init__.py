"""A discrete-event simulation of fleets, in which the real core decides beside simple balancers."""

from collections.abc import Awaitable, Callable
from functools import partial

from bench import load
from bench.result import Section
from bench.simulation.scenarios import SCENARIOS

__all__ = ["BENCHMARKS"]

QUICK_SCALE = 0.5
"""Of the traces' lengths: in shorter ones too little has been learned for the targets."""


async def _play(name: str, say: Callable[[str], None]) -> Section:
    say(f"simulation: {name}")
    return SCENARIOS[name](QUICK_SCALE if load.PACE < 1.0 else 1.0, 1)


BENCHMARKS: dict[str, Callable[[Callable[[str], None]], Awaitable[Section]]] = {
    f"simulated-{name}": partial(_play, name) for name in SCENARIOS
}
"""Each scenario as a benchmark among the others."""
