"""The claims, each as a scenario: a fleet, a trace, who is compared, and what must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from bench.result import Row, Section, at_least, at_most
from bench.simulation import traces
from bench.simulation.balancers import (
    CentralLine,
    LeastConnections,
    PowerOfTwo,
    RoundRobin,
    WeightedLeastConnections,
    maxconn,
)
from bench.simulation.job import Job
from bench.simulation.pilot import Pilot
from bench.simulation.run import MakeBalancer, mean, quantile, run
from bench.simulation.server import BLOCK_TOKENS, Hardware
from extproc.core.dispatcher import DispatcherOptions
from extproc.core.intake import IntakeOptions
from extproc.core.objective import Criticality, Objective, Objectives
from extproc.core.outcome import Settlement
from extproc.core.queue import Ticket

UNEVEN = tuple(Hardware(slots=slots) for slots in (1, 1, 2, 2, 4, 4, 8, 8))
EVEN = tuple(Hardware(slots=4) for _ in range(8))
SERVICE_S = 4.0


def _slots(fleet: Sequence[Hardware]) -> int:
    return sum(hardware.slots for hardware in fleet)


def pilot(
    until: float = 0.0,
    options: DispatcherOptions | None = None,
    *,
    is_blind: bool = False,
    kind: type[Pilot] = Pilot,
) -> MakeBalancer:
    """The real core as a balancer; looks at the servers end at `until`."""
    return lambda servers, random, clock: kind(
        servers, random, clock, options, is_blind=is_blind, looks_until=until
    )


BALANCERS: dict[str, MakeBalancer] = {
    "round robin": lambda servers, random, _: RoundRobin(servers, random),
    "least connections": lambda servers, random, _: LeastConnections(servers, random),
    "power of two choices": lambda servers, random, _: PowerOfTwo(servers, random),
    "weighted least connections": lambda servers, random, _: WeightedLeastConnections(
        servers, random
    ),
    "a line with one limit for all": lambda servers, random, _: maxconn(servers, random),
    "oracle": lambda servers, random, _: CentralLine(servers, random),
}


def uneven(scale: float = 1.0, seed: int = 1) -> Section:
    """Waiting at 0.9 load, on servers of 1 to 8 slots."""
    count = int(30_000 * scale)
    rate = 0.9 * _slots(UNEVEN) / SERVICE_S
    waits = {}
    rows = []
    for name, make in {**BALANCERS, "coxswain": pilot()}.items():
        jobs, _ = run(traces.plain(Random(seed), count, rate), UNEVEN, make, seed)
        waits[name] = [job.waited_s for job in jobs]
        p99 = quantile(waits[name], 0.99)
        rows.append(
            Row(what=f"{name}: waiting", value=f"mean {mean(waits[name]):.2f} s, p99 {p99:.2f} s")
        )
    ratio = quantile(waits["coxswain"], 0.99) / quantile(waits["oracle"], 0.99)
    rows.append(at_most("coxswain's p99 of waiting / the oracle's", ratio, 1.05))
    return Section(
        title="Uneven fleet",
        method=f"servers of 1, 1, 2, 2, 4, 4, 8, 8 slots, 0.9 load, {count:,} requests, lognormal "
        "service times, mean 4 s, coefficient of variation 1.5",
        rows=tuple(rows),
    )


def chats(scale: float = 1.0, seed: int = 1) -> Section:
    """Conversations: what the caches give, and what it costs in waiting."""
    count = int(8_000 * scale)
    rows: list[Row] = []
    for load in (0.7, 0.95):
        rate = _rate_for(load, count, seed)
        results = {}
        others = {name: BALANCERS[name] for name in ("least connections", "power of two choices")}
        makes = {
            **others,
            "affinity-blind": pilot(count / rate, is_blind=True),
            "coxswain": pilot(count / rate),
        }
        for name, make in makes.items():
            jobs, _ = run(traces.chats(Random(seed), count, rate), EVEN, make, seed)
            results[name] = jobs
            rows.append(_chat_row(f"{load} load, {name}", jobs))
        ours, blind = results["coxswain"], results["affinity-blind"]
        if load == 0.7:
            share = sum(job.cached_tokens for job in ours) / _most_cached_tokens(ours)
            rows.append(at_least("0.7 load: cached tokens / the oracle's", share, 0.9))
            for what, of in (("mean", mean), ("p99", lambda n: quantile(n, 0.99))):
                ratio = of(j.ttft_s for j in ours) / of(j.ttft_s for j in blind)
                rows.append(at_most(f"0.7 load: {what} first token / affinity-blind", ratio, 1.0))
        else:
            ratio = quantile((j.waited_s for j in ours), 0.99) / quantile(
                (j.waited_s for j in blind), 0.99
            )
            rows.append(at_most("0.95 load: p99 of waiting / affinity-blind", ratio, 1.1))
    return Section(
        title="Chats",
        method=f"8 servers of 4 slots, {count:,} turns of conversations over 4 shared system "
        "prompts of 600 tokens; loads are those of the affinity-blind line; the oracle finds "
        "whatever any server has read before",
        rows=tuple(rows),
    )


def _rate_for(load: float, count: int, seed: int) -> float:
    """The rate of turns at which the affinity-blind line has that load."""
    rate = load * _slots(EVEN) / 3.7
    for _ in range(2):
        trace = traces.chats(Random(seed + 1), count // 3, rate)
        jobs, _ = run(trace, EVEN, pilot(is_blind=True), seed)
        rate = load * _slots(EVEN) / mean(_held_s(job) for job in jobs)
    return rate


def _held_s(job: Job) -> float:
    assert job.started_at is not None and job.ended_at is not None
    return job.ended_at - job.started_at


def _chat_row(what: str, jobs: Sequence[Job]) -> Row:
    ttft = [job.ttft_s for job in jobs]
    waits = [job.waited_s for job in jobs]
    share = sum(job.cached_tokens for job in jobs) / sum(job.prompt_tokens for job in jobs)
    return Row(
        what=what,
        value=f"first token mean {mean(ttft):.2f} s, p99 {quantile(ttft, 0.99):.2f} s; waiting "
        f"p99 {quantile(waits, 0.99):.2f} s; cached {share:.0%}",
    )


def _most_cached_tokens(jobs: Sequence[Job]) -> int:
    """What the same requests would find if every server knew what any has read."""
    events = [(job.arrived_at, 1, job) for job in jobs]
    events += [(job.ended_at or 0.0, 0, job) for job in jobs]
    known: set[int] = set()
    tokens = 0
    for _, is_arrival, job in sorted(events, key=lambda event: event[:2]):
        if not is_arrival:
            known.update(job.blocks_after)
            continue
        depth = next((i for i, b in enumerate(job.blocks) if b not in known), len(job.blocks))
        tokens += min(depth * BLOCK_TOKENS, job.prompt_tokens - 1)
    return tokens


def cache_sizes(scale: float = 1.0, seed: int = 1) -> Section:
    """Whether the belief about a cache that nobody can ask for comes right."""
    count = int(8_000 * scale)
    rows = []
    for tokens in (16_000, 400_000):
        fleet = tuple(Hardware(slots=4, cache_tokens=tokens) for _ in range(4))
        rate = 0.6 * _slots(fleet) / 3.7
        trace = traces.chats(Random(seed), count, rate)
        jobs, _ = run(trace, fleet, pilot(count / rate, kind=Noting), seed)
        late = jobs[count // 2 :]
        expected = sum(job.notes["cached"] for job in late)
        found = sum(job.cached_tokens for job in late)
        rows.append(
            at_most(f"cache of {tokens:,} tokens: expected / found", expected / found, 1.25)
        )
        rows.append(
            at_least(f"cache of {tokens:,} tokens: expected / found", expected / found, 0.75)
        )
    return Section(
        title="Believed cache",
        method=f"second half of {count:,} turns; every server is believed to hold 32,768 tokens "
        "at first",
        rows=tuple(rows),
    )


def hot_prefix(scale: float = 1.0, seed: int = 1) -> Section:
    """Half of all requests begin alike: nobody drowns in them."""
    count = int(6_000 * scale)
    rows = []
    for load in (0.3, 0.7, 0.9):
        rate = load * _slots(EVEN) / 3.3
        jobs = list(traces.hot(Random(seed), count, rate))
        _, servers = run(jobs, EVEN, pilot(count / rate), seed)
        most = max(server.started for server in servers) / (count / len(servers))
        rows.append(at_most(f"{load} load: the busiest server's share / its fair one", most, 1.5))
    return Section(
        title="Hot prefix",
        method=f"8 servers of 4 slots, {count:,} requests, half of which share 2,000 tokens",
        rows=tuple(rows),
    )


class Noting(Pilot):
    """Writes down what the core promised and expected."""

    def noted(self, job: Job, ticket: Ticket, now: float) -> None:
        place = self.dispatcher.place_of(ticket, now)
        job.notes["position"] = place.position
        if place.expected_s is not None:
            job.notes["wait_s"] = place.expected_s

    def _settle(self, job: Job, settlement: Settlement, now: float) -> None:
        super()._settle(job, settlement, now)
        lease = self._leases.get(job.id)
        run_ = self.dispatcher.state.running.get(lease) if lease is not None else None
        if run_ is not None:
            job.notes["first_s"] = run_.expected_first_s
            job.notes["cached"] = run_.cached_tokens


def foresight(scale: float = 1.0, seed: int = 1) -> Section:
    """What is told about the future, against what came."""
    rows = []
    for headers, is_early in (("headers with it", False), ("headers before reading", True)):
        errors, told = _first_token_errors(int(4_000 * scale), seed, has_early_headers=is_early)
        what = f"predicted time to first token, {headers}: median error"
        rows.append(at_most(what, quantile(errors, 0.5), 0.25))
        what = f"time to first token as it is counted, {headers}: median and 90 % error"
        value = f"{quantile(told, 0.5):.2f}, {quantile(told, 0.9):.2f}"
        rows.append(Row(what=what, value=value))
    bursts = _bursts(Random(seed), int(8_000 * scale))
    waited, _ = run(bursts, UNEVEN, pilot(bursts[-1].arrived_at, kind=Noting), seed)
    waits = [
        abs(job.notes["wait_s"] - job.waited_s) / max(job.waited_s, 0.1)
        for job in waited[200:]
        if "wait_s" in job.notes
    ]
    return Section(
        title="Foresight",
        method="relative errors, medians, after 200 requests; chats on servers of three speeds; "
        "bursts of twice the fleet's capacity on the uneven fleet",
        rows=(
            *rows,
            at_most("countdown when the wait begins, median error", quantile(waits, 0.5), 0.3),
        ),
    )


def _first_token_errors(
    count: int, seed: int, *, has_early_headers: bool
) -> tuple[list[float], list[float]]:
    """Relative errors after 200 requests, each against when its first token really came: of what
    was predicted, and of what was told in the end."""
    mixed = tuple(
        Hardware(slots=4, prefill_s=prefill, fixed_s=fixed, has_early_headers=has_early_headers)
        for prefill, fixed in ((0.0005, 0.05), (0.0005, 0.05), (0.001, 0.1), (0.002, 0.2))
    )
    trace = traces.chats(Random(seed), count, 2.0)
    jobs, _ = run(trace, mixed, pilot(count / 2.0, kind=Noting), seed)
    predicted, told = [], []
    for job in jobs[200:]:
        taken = job.ttft_s - job.waited_s
        if taken and job.answered_at is not None:
            predicted.append(abs(job.notes["first_s"] - taken) / taken)
            told.append(abs(job.notes["told_first_at"] - job.answered_at) / taken)
    return predicted, told


def _bursts(random: Random, count: int) -> list[Job]:
    """Requests in waves of 500: at twice what the uneven fleet can serve, then at 0.4 of it."""
    jobs = traces.plain(random, count, 1.0)
    now = 0.0
    for job in jobs:
        load = 2.0 if (job.id // 500) % 2 else 0.4
        now += random.expovariate(load * _slots(UNEVEN) / SERVICE_S)
        job.arrived_at = now
    return jobs


PROMISE_S = 5.0
SERVICES = Objectives(
    by_name={
        "gold": Objective(name="gold", criticality=Criticality.CRITICAL, queue_s=PROMISE_S),
        "plain": Objective(name="plain"),
    }
)


def overload(scale: float = 1.0, seed: int = 1) -> Section:
    """Twice the load that fits, 30 % of it critical."""
    count = int(12_000 * scale)
    random = Random(seed)
    jobs = traces.plain(random, count, 2 * _slots(UNEVEN) / SERVICE_S)
    for job in jobs:
        job.objective = "gold" if random.random() < 0.3 else "plain"
    options = DispatcherOptions(
        max_queued=200, stale_after_s=1e9, intake=IntakeOptions(objectives=SERVICES)
    )
    jobs, _ = run(jobs, UNEVEN, pilot(0.0, options), seed)
    gold = [job for job in jobs if job.objective == "gold"]
    plain = [job for job in jobs if job.objective == "plain"]
    kept = sum(job.refusal is None and job.waited_s <= PROMISE_S for job in gold) / len(gold)
    served = sum(job.refusal is None for job in plain) / len(plain)
    return Section(
        title="Overload",
        method=f"{count:,} requests at twice the capacity, a line of 200; critical ones are "
        f"promised a slot within {PROMISE_S:g} s",
        rows=(
            at_least("critical requests whose promise was kept", kept, 0.99),
            Row(what="standard requests served", value=f"{served:.0%}"),
        ),
    )


def tenants(scale: float = 1.0, seed: int = 1) -> Section:
    """One tenant floods the fleet, nine ask for a little: they must not feel it."""
    count = int(6_000 * scale)
    random = Random(seed)
    jobs = traces.plain(random, count, 1.5 * _slots(EVEN) / SERVICE_S)
    for job in jobs:
        job.tenant = "flood" if random.random() < 0.7 else f"tenant {random.randrange(9)}"
    jobs, _ = run(jobs, EVEN, pilot(), seed)
    small = quantile((job.waited_s for job in jobs if job.tenant != "flood"), 0.99)
    flood = quantile((job.waited_s for job in jobs if job.tenant == "flood"), 0.5)
    return Section(
        title="Tenants",
        method=f"{count:,} requests at 1.5 of the capacity, 70 % of them of one tenant",
        rows=(at_most("the small tenants' p99 wait / the flood's median", small / flood, 0.2),),
    )


SCENARIOS: dict[str, Callable[[float, int], Section]] = {
    "uneven": uneven,
    "chats": chats,
    "caches": cache_sizes,
    "hot": hot_prefix,
    "foresight": foresight,
    "overload": overload,
    "tenants": tenants,
}
