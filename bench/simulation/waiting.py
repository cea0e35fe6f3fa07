"""Who waits how long: uneven fleets, failures, overload, tenants. And how well it is predicted."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from bench.result import Row, Section, at_least, at_most
from bench.simulation import traces
from bench.simulation.job import Job
from bench.simulation.pilot import UNBOUNDED, Noting
from bench.simulation.run import (
    BALANCERS,
    EVEN,
    UNEVEN,
    MakeBalancer,
    Outage,
    p99,
    pilot,
    quantile,
    run,
    said,
    slots_of,
)
from bench.simulation.server import Hardware
from bench.simulation.traces import SERVICE_S
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.queue.limits import QueueLimits


def uneven(scale: float = 1.0, seed: int = 1) -> Section:
    """Waiting at 0.9 load, on servers of 1 to 8 slots."""
    count = int(30_000 * scale)
    rate = 0.9 * slots_of(UNEVEN) / SERVICE_S
    played = _compare(UNEVEN, rate, count, seed, pilot())
    waits = {name: [job.waited_s for job in jobs] for name, jobs in played.items()}
    rows = [Row(what=f"{name}: waiting", value=said(of)) for name, of in waits.items()]
    ratio = p99(waits["coxswain"]) / p99(waits["oracle"])
    rows.append(at_most("coxswain's p99 of waiting / the oracle's", ratio, 1.05))
    return Section(
        title="Uneven fleet",
        method=f"servers of 1, 1, 2, 2, 4, 4, 8, 8 slots, 0.9 load, {count:,} requests, lognormal "
        "service times, mean 4 s, coefficient of variation 1.5",
        rows=tuple(rows),
    )


def failures(scale: float = 1.0, seed: int = 1) -> Section:
    """Servers die with what runs on them, and come back: nobody is lost, and few feel it."""
    count = int(12_000 * scale)
    rate = 0.75 * slots_of(EVEN) / SERVICE_S
    all_s = count / rate
    outages = [
        Outage(server, share * all_s, (share + 0.1) * all_s)
        for server, share in ((0, 0.2), (3, 0.25), (5, 0.5), (0, 0.7))
    ]
    waits = {}
    rows = []
    for name, jobs in _compare(EVEN, rate, count, seed, pilot(2 * all_s), outages).items():
        waits[name] = [job.waited_s for job in jobs if job.rejection is None]
        lost = sum(job.lost_tries for job in jobs)
        rows.append(Row(what=f"{name}: waiting", value=f"{said(waits[name])}; retries {lost}"))
    rows.append(at_least("coxswain: requests served", len(waits["coxswain"]) / count, 1.0))
    late_s = p99(waits["coxswain"]) - p99(waits["oracle"])
    rows.append(at_most("coxswain's p99 of waiting beyond the oracle's", late_s, 1.0, " s"))
    return Section(
        title="Failures",
        method=f"8 servers of 4 slots, {count:,} requests at 0.75 load; four times a server dies "
        "for a tenth of the time, twice two at once; clients whose requests broke retry at once, "
        "and their wait counts from the first attempt; only coxswain has to detect which servers "
        "are down",
        rows=tuple(rows),
    )


def _compare(
    fleet: Sequence[Hardware],
    rate: float,
    count: int,
    seed: int,
    ours: MakeBalancer,
    outages: Sequence[Outage] = (),
) -> dict[str, list[Job]]:
    """What each balancer makes of the same trace."""
    makes = {**BALANCERS, "coxswain": ours}
    return {
        name: run(traces.plain(Random(seed), count, rate), fleet, make, seed, outages)[0]
        for name, make in makes.items()
    }


SLO_S = 5.0
SERVICES = Objectives(
    by_name={
        "gold": Objective(name="gold", criticality=Criticality.CRITICAL, queue_s=SLO_S),
        "plain": Objective(name="plain"),
    }
)


def overload(scale: float = 1.0, seed: int = 1) -> Section:
    """Twice the load that fits, 30 % of it critical."""
    count = int(12_000 * scale)
    random = Random(seed)
    jobs = traces.plain(random, count, 2 * slots_of(UNEVEN) / SERVICE_S)
    for job in jobs:
        job.objective = "gold" if random.random() < 0.3 else "plain"
    options = replace(
        UNBOUNDED,
        queue=QueueLimits(max_requests=200),
        resolver=ResolverOptions(objectives=SERVICES),
    )
    jobs, _ = run(jobs, UNEVEN, pilot(0.0, options), seed)
    gold = [job for job in jobs if job.objective == "gold"]
    plain = [job for job in jobs if job.objective == "plain"]
    kept = sum(job.rejection is None and job.waited_s <= SLO_S for job in gold) / len(gold)
    served = sum(job.rejection is None for job in plain) / len(plain)
    return Section(
        title="Overload",
        method=f"{count:,} requests at twice the capacity, a queue of 200; the SLO of critical "
        f"ones is a slot within {SLO_S:g} s",
        rows=(
            at_least("critical requests that met their SLO", kept, 0.99),
            Row(what="standard requests served", value=f"{served:.0%}"),
        ),
    )


def tenants(scale: float = 1.0, seed: int = 1) -> Section:
    """One tenant floods the fleet, nine ask for a little: they must not feel it."""
    count = int(6_000 * scale)
    random = Random(seed)
    jobs = traces.plain(random, count, 1.5 * slots_of(EVEN) / SERVICE_S)
    for job in jobs:
        job.tenant = "flood" if random.random() < 0.7 else f"tenant {random.randrange(9)}"
    jobs, _ = run(jobs, EVEN, pilot(), seed)
    small = p99(job.waited_s for job in jobs if job.tenant != "flood")
    flood = quantile((job.waited_s for job in jobs if job.tenant == "flood"), 0.5)
    return Section(
        title="Tenants",
        method=f"{count:,} requests at 1.5 of the capacity, 70 % of them of one tenant",
        rows=(at_most("the small tenants' p99 wait / the flood's median", small / flood, 0.2),),
    )


def foresight(scale: float = 1.0, seed: int = 1) -> Section:
    """Predictions compared with the outcome."""
    rows = []
    for headers, is_early in (("headers with it", False), ("headers before prefill", True)):
        errors, predictions = _first_token_errors(
            int(4_000 * scale), seed, has_early_headers=is_early
        )
        what = f"predicted time to first token, {headers}: median error"
        rows.append(at_most(what, quantile(errors, 0.5), 0.25))
        what = f"measured time to first token, {headers}: median and 90 % error"
        value = f"{quantile(predictions, 0.5):.2f}, {quantile(predictions, 0.9):.2f}"
        rows.append(Row(what=what, value=value))
    bursts = _bursts(Random(seed), int(8_000 * scale))
    waited, _ = run(bursts, UNEVEN, pilot(bursts[-1].arrived_at, kind=Noting), seed)
    waits = [
        abs(job.notes["wait_s"] - job.waited_s) / max(job.waited_s, 0.1)
        for job in waited[200:]
        if "wait_s" in job.notes
    ]
    return Section(
        title="Predictions",
        method="relative errors, medians, after 200 requests; chats on servers of three speeds; "
        "bursts of twice the fleet's capacity on the uneven fleet",
        rows=(
            *rows,
            at_most("countdown at the start of the wait, median error", quantile(waits, 0.5), 0.3),
        ),
    )


def _first_token_errors(
    count: int, seed: int, *, has_early_headers: bool
) -> tuple[list[float], list[float]]:
    """Relative errors after 200 requests, each against when its first token really came: of what
    was predicted, and of the last prediction."""
    mixed = tuple(
        Hardware(slots=4, prefill_s=prefill, fixed_s=fixed, has_early_headers=has_early_headers)
        for prefill, fixed in ((0.0005, 0.05), (0.0005, 0.05), (0.001, 0.1), (0.002, 0.2))
    )
    trace = traces.chats(Random(seed), count, 2.0)
    jobs, _ = run(trace, mixed, pilot(count / 2.0, kind=Noting), seed)
    predicted, predictions = [], []
    for job in jobs[200:]:
        taken = job.ttft_s - job.waited_s
        if taken and job.answered_at is not None:
            predicted.append(abs(job.notes["first_s"] - taken) / taken)
            predictions.append(abs(job.notes["told_first_at"] - job.answered_at) / taken)
    return predicted, predictions


def _bursts(random: Random, count: int) -> list[Job]:
    """Requests in waves of 500: at twice what the uneven fleet can serve, then at 0.4 of it."""
    jobs = traces.plain(random, count, 1.0)
    now = 0.0
    for job in jobs:
        load = 2.0 if (job.id // 500) % 2 else 0.4
        now += random.expovariate(load * slots_of(UNEVEN) / SERVICE_S)
        job.arrived_at = now
    return jobs
