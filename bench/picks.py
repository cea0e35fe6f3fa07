"""One pick, and one release that assigns, as the fleet grows: the core alone."""

import math
import time
from pathlib import Path
from random import Random
from statistics import median_high

from bench.result import Row, Say, Section, at_most
from bench.silent_fleet import SilentFleet, without_gc
from extproc.core.decision import Picked
from extproc.core.fleet.endpoint import ContextSharing
from extproc.core.prediction.size_features import features_of
from extproc.core.queue.limits import QueueLimits
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import DispatcherOptions
from extproc.core.slots.lease import LeaseEnd
from extproc.rules.active_rules import ActiveRules
from extproc.rules.loading import load_rules

FLEETS = (10, 100, 1_000, 10_000)
WAITING = 100_000
SAMPLES = 5_000
SLOTS = (1, 2, 4, 8)
EXAMPLES = Path(__file__).parents[1] / "examples"
RULES = ("pin_team:PinTeam", "cheap_at_night:CheapAtNight")


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
    for size in FLEETS[:3]:
        say(f"picks: {size} endpoints with shared contexts")
        split_us, shared_us = measure_shared(size)
        rows.append(
            Row(
                what=f"pick, {size} endpoints whose slots share a context (split)",
                value=f"{shared_us:.1f} us ({split_us:.1f} us)",
            )
        )
    for rule in RULES:
        for size in FLEETS[:3]:
            say(f"picks: {size} endpoints, {rule}")
            value = f"{measure_rule(size, rule):.1f} us"
            rows.append(Row(what=f"pick with the rule {rule}, {size} endpoints", value=value))
    return Section(
        title="Picks",
        method=f"the core alone, median of {SAMPLES} calls; endpoints of 1, 2, 4 and 8 slots, "
        f"{WAITING:,} queued requests for the assignments",
        rows=tuple(rows),
    )


def measure_shared(size: int) -> tuple[float, float]:
    """Microseconds of a pick into a half-busy fleet with a context for each slot, and with one for
    all slots of a server, in turns. Of the answers' lengths enough is known."""
    picks_us: list[list[float]] = [[], []]
    fleets = []
    request = Request(id="bench", timeout_s=60.0, prompt_tokens=1_000, prompt_chars=4_000)
    for context in (ContextSharing.PER_SLOT, ContextSharing.SHARED):
        random = Random(size)
        fleet = SilentFleet(random, DispatcherOptions(), size, lambda: 4, context=context)
        state = fleet.dispatcher.state
        features = features_of(request, "", state.resolver.objective_of(request).name)
        for _ in range(500):
            answer = random.lognormvariate(5.0, 0.7)
            state.answer_lengths.add(features, answer, is_complete=True)
            state.prompt_sizes.record_most("", request, int(random.gauss(1_000, 50)))
        leases = []
        for _ in range(2 * size):
            outcome = fleet.dispatcher.submit(request, 2.0)
            assert isinstance(outcome, Picked)
            leases.append(outcome.lease)
        fleets.append((fleet.dispatcher, random, leases))
    with without_gc():
        for _ in range(SAMPLES):
            for pick_us, (dispatcher, random, leases) in zip(picks_us, fleets, strict=True):
                began = time.perf_counter_ns()
                outcome = dispatcher.submit(request, 2.0)
                pick_us.append((time.perf_counter_ns() - began) / 1000)
                assert isinstance(outcome, Picked)
                index = random.randrange(len(leases))
                dispatcher.release(leases[index], LeaseEnd.SERVED, 2.0)
                leases[index] = outcome.lease
    return median_high(picks_us[0]), median_high(picks_us[1])


def measure_rule(size: int, rule: str) -> float:
    """Microseconds of a pick under a rule of `examples/`, into an idle fleet."""
    fleet = SilentFleet(Random(size), DispatcherOptions(), size, lambda: 4)
    dispatcher = fleet.dispatcher
    dispatcher.set_rules(ActiveRules(load_rules([rule], EXAMPLES)), 1.0)
    pick_us: list[float] = []
    with without_gc():
        for number in range(SAMPLES):
            request = Request(id=str(number), timeout_s=60.0)
            began = time.perf_counter_ns()
            outcome = dispatcher.submit(request, 2.0)
            pick_us.append((time.perf_counter_ns() - began) / 1000)
            assert isinstance(outcome, Picked)
            dispatcher.release(outcome.lease, LeaseEnd.SERVED, 2.0)
    return median_high(pick_us)


def measure_fleet(size: int) -> tuple[float, float]:
    """Microseconds of a pick into a half-busy fleet, and of a release with a long line."""
    random = Random(size)
    options = DispatcherOptions(queue=QueueLimits(max_requests=2 * WAITING))
    fleet = SilentFleet(random, options, size, lambda: random.choice(SLOTS))
    dispatcher = fleet.dispatcher
    total = sum(dispatcher.view.slots_at(one).slots for one in fleet.addresses)
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
            dispatcher.responded(leases[index], 4.0, is_stream=False)
            began = time.perf_counter_ns()
            dispatcher.release(leases[index], LeaseEnd.SERVED, 4.0)
            hand_over_us.append((time.perf_counter_ns() - began) / 1000)
            leases[index] = fleet.picked.pop().lease
    return median_high(pick_us), median_high(hand_over_us)
