"""What a decision with all scorers costs, and what the memory of prompts weighs."""

import time
import tracemalloc
from random import Random
from statistics import median_high

from bench.result import Row, Say, Section, at_most
from bench.silent_fleet import SilentFleet, without_gc
from extproc.core.address import Address
from extproc.core.observation import ModelReading
from extproc.core.prediction.prefix_cache import MAX_BLOCKS_ALL, PrefixIndex
from extproc.core.request import Request
from extproc.core.scheduler.decision import Picked
from extproc.core.scheduler.dispatcher import DispatcherOptions
from extproc.core.slots.lease import Lease, LeaseEnd

FLEETS = (10, 100, 1_000, 10_000)
PICKS = 4_000
WARM = 2_000
PROMPTS = 1_000
PROMPT_BLOCKS = 250


async def measure(say: Say) -> Section:
    """Medians of the processor time of single picks, at each size of the fleet."""
    rows: list[Row] = []
    for size in FLEETS:
        say(f"scoring: {size} endpoints")
        cost_us = measure_fleet(size)
        what = f"pick with all scorers, {size} endpoints"
        row = Row(what=what, value=f"{cost_us:.0f} us")
        rows.append(at_most(what, cost_us, 200, " us") if size == 1_000 else row)
    say("scoring: the memory of prompts")
    rows.append(at_most("cache index of 100 endpoints, full", measure_index_mb(), 100, " MB"))
    return Section(
        title="Scoring",
        method=f"the core alone, median of {PICKS - WARM} calls, CPU time; prompts of "
        f"{PROMPT_BLOCKS} blocks in {PROMPTS} sessions of 50 tenants, a model and an SLO",
        rows=tuple(rows),
    )


def measure_fleet(size: int) -> float:
    """Microseconds of one pick."""
    random = Random(size)
    options = DispatcherOptions(queue_max_requests=10**6, stale_after_s=1e9)
    models = (ModelReading(name="m"),)
    dispatcher = SilentFleet(random, options, size, lambda: 8, models).dispatcher
    shared = tuple(random.getrandbits(60) for _ in range(30))
    more = PROMPT_BLOCKS - len(shared)
    chains = [shared + tuple(random.getrandbits(60) for _ in range(more)) for _ in range(PROMPTS)]
    now = 2.0
    leases: list[Lease] = []
    costs_us: list[float] = []
    with without_gc():
        for number in range(PICKS):
            now += 0.01
            request = Request(
                id="bench",
                timeout_s=60.0,
                model="m",
                prompt_blocks=chains[number % PROMPTS],
                prompt_tokens=16_000,
                session_id=f"s{number % PROMPTS}",
                fairness_id=f"t{number % 50}",
                ttft_s=1.0,
            )
            began = time.thread_time_ns()
            outcome = dispatcher.submit(request, now)
            costs_us.append((time.thread_time_ns() - began) / 1000)
            if isinstance(outcome, Picked):
                dispatcher.answered(outcome.lease, now + 0.005)
                leases.append(outcome.lease)
            if len(leases) > 2 * size:
                dispatcher.release(leases.pop(0), LeaseEnd.SERVED, now)
    return median_high(costs_us[WARM:])


def measure_index_mb() -> float:
    """Megabytes of the index when the memories of 100 endpoints are full."""
    random = Random(1)
    index = PrefixIndex()
    addresses = [Address("10.0.0.1", 8000 + number) for number in range(100)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for address in addresses:
            for _ in range(2 + MAX_BLOCKS_ALL // 100 // PROMPT_BLOCKS):
                chain = tuple(random.getrandbits(60) for _ in range(PROMPT_BLOCKS))
                index.learn(address, chain, 1e9)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / 1e6
