"""One pick, and one release that assigns, as the fleet grows: the core alone."""

import math
import time
from random import Random
from statistics import median_high

from bench.result import Row, Say, Section, at_most
from bench.silent_fleet import SilentFleet, without_gc
from extproc.core.request import Request
from extproc.core.scheduler.decision import Picked
from extproc.core.scheduler.dispatcher import DispatcherOptions
from extproc.core.slots.lease import LeaseEnd

FLEETS = (10, 100, 1_000, 10_000)
WAITING = 100_000
SAMPLES = 5_000
SLOTS = (1, 2, 4, 8)


async def measure(say: Say) -> Section:
    """Medians of many single calls, at each size of the fleet."""
    picks: dict[int, float] = {}
    hand_overs: dict[int, float] = {}
    for size in FLEETS:
        say(f"picks: {size} endpoints")
        picks[size], hand_overs[size] = measure_fleet(size)
    rows = []
    for what, costs in (("pick", picks), ("release that assigns", hand_overs)):
        for size in FLEETS:
            row = Row(what=f"{what}, {size} endpoints", value=f"{costs[size]:.1f} us")
            if size == 1_000:
                row = at_most(f"{what}, {size} endpoints", costs[size], 50, " us")
            rows.append(row)
        growth = costs[FLEETS[-1]] / costs[FLEETS[0]]
        allowed = math.log(FLEETS[-1]) / math.log(FLEETS[0])
        rows.append(at_most(f"{what}, growth from 10 to 10,000 (log n: 4)", growth, allowed))
    return Section(
        title="Picks",
        method=f"the core alone, median of {SAMPLES} calls; endpoints of 1, 2, 4 and 8 slots, "
        f"{WAITING:,} queued requests for the assignments",
        rows=tuple(rows),
    )


def measure_fleet(size: int) -> tuple[float, float]:
    """Microseconds of a pick into a half-busy fleet, and of a release with a long line."""
    random = Random(size)
    options = DispatcherOptions(queue_max_requests=2 * WAITING)
    fleet = SilentFleet(random, options, size, lambda: random.choice(SLOTS))
    dispatcher = fleet.dispatcher
    total = sum(dispatcher.slots_at(one).slots for one in fleet.addresses)
    request = Request(id="bench", timeout_s=60.0)
    leases = []
    for _ in range(total // 2):
        outcome = dispatcher.submit(request, 2.0)
        assert isinstance(outcome, Picked)
        leases.append(outcome.lease)
    with without_gc():
        pick_us: list[float] = []
        for _ in range(SAMPLES):
            began = time.perf_counter_ns()
            outcome = dispatcher.submit(request, 2.0)
            pick_us.append((time.perf_counter_ns() - began) / 1000)
            assert isinstance(outcome, Picked)
            index = random.randrange(len(leases))
            dispatcher.release(leases[index], LeaseEnd.SERVED, 2.0)
            leases[index] = outcome.lease
        while isinstance(outcome := dispatcher.submit(request, 3.0), Picked):
            leases.append(outcome.lease)
        for _ in range(WAITING):
            dispatcher.submit(request, 3.0)
        hand_over_us = []
        for _ in range(SAMPLES):
            index = random.randrange(len(leases))
            dispatcher.answered(leases[index], 4.0, is_stream=False)
            began = time.perf_counter_ns()
            dispatcher.release(leases[index], LeaseEnd.SERVED, 4.0)
            hand_over_us.append((time.perf_counter_ns() - began) / 1000)
            leases[index] = fleet.picked.pop().lease
    return median_high(pick_us), median_high(hand_over_us)
