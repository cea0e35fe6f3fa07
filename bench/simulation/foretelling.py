"""Predictions compared with the outcome."""

from random import Random

from bench.result import Row, Section, at_most
from bench.simulation import traces
from bench.simulation.job import Job
from bench.simulation.pilot import Noting
from bench.simulation.run import UNEVEN, pilot, quantile, run, slots_of
from bench.simulation.server import Hardware


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
        now += random.expovariate(load * slots_of(UNEVEN) / traces.SERVICE_S)
        job.arrived_at = now
    return jobs
