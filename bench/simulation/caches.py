"""What prompt caches give, and what that costs: chats, sizes, a hot prefix."""

from collections.abc import Sequence
from random import Random

from bench.result import Row, Section, at_least, at_most
from bench.simulation import traces
from bench.simulation.job import Job
from bench.simulation.pilot import Noting
from bench.simulation.run import BALANCERS, EVEN, mean, p99, pilot, run, said, slots_of
from bench.simulation.server import BLOCK_TOKENS, Hardware


def chats(scale: float = 1.0, seed: int = 1) -> Section:
    """Conversations: what the caches give, and what it costs in waiting."""
    count = int(8_000 * scale)
    rows: list[Row] = []
    for load in (0.7, 0.95):
        rate = _rate_for(load, count, seed)
        results = {}
        makes = {
            **BALANCERS,
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
            for what, of in (("mean", mean), ("p99", p99)):
                ratio = of(j.ttft_s for j in ours) / of(j.ttft_s for j in blind)
                rows.append(at_most(f"0.7 load: {what} first token / affinity-blind", ratio, 1.0))
        else:
            ratio = p99(j.waited_s for j in ours) / p99(j.waited_s for j in blind)
            rows.append(at_most("0.95 load: p99 of waiting / affinity-blind", ratio, 1.1))
    return Section(
        title="Chats",
        method=f"8 servers of 4 slots, {count:,} turns of conversations over 4 shared system "
        "prompts of 600 tokens; loads are relative to the affinity-blind queue; the oracle "
        "knows what any server has read",
        rows=tuple(rows),
    )


def _rate_for(load: float, count: int, seed: int) -> float:
    """The rate of turns at which the affinity-blind line has that load."""
    rate = load * slots_of(EVEN) / 3.7
    for _ in range(2):
        trace = traces.chats(Random(seed + 1), count // 3, rate)
        jobs, _ = run(trace, EVEN, pilot(is_blind=True), seed)
        rate = load * slots_of(EVEN) / mean(_held_s(job) for job in jobs)
    return rate


def _held_s(job: Job) -> float:
    assert job.started_at is not None and job.ended_at is not None
    return job.ended_at - job.started_at


def _chat_row(what: str, jobs: Sequence[Job]) -> Row:
    ttft, waits = said(job.ttft_s for job in jobs), said(job.waited_s for job in jobs)
    share = sum(job.cached_tokens for job in jobs) / sum(job.prompt_tokens for job in jobs)
    return Row(what=what, value=f"first token {ttft}; waiting {waits}; cached {share:.0%}")


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
        rate = 0.6 * slots_of(fleet) / 3.7
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
        title="Cache estimate",
        method=f"second half of {count:,} turns; the initial estimate is 32,768 tokens for each "
        "server",
        rows=tuple(rows),
    )


def hot_prefix(scale: float = 1.0, seed: int = 1) -> Section:
    """Half of all requests begin alike: nobody drowns in them."""
    count = int(6_000 * scale)
    rows = []
    for load in (0.3, 0.7, 0.9):
        rate = load * slots_of(EVEN) / 3.3
        jobs = list(traces.hot(Random(seed), count, rate))
        _, servers = run(jobs, EVEN, pilot(count / rate), seed)
        most = max(server.started for server in servers) / (count / len(servers))
        rows.append(at_most(f"{load} load: the busiest server's share / its fair one", most, 1.5))
    return Section(
        title="Hot prefix",
        method=f"8 servers of 4 slots, {count:,} requests, half of which share 2,000 tokens",
        rows=tuple(rows),
    )
