"""One server whose slots share a context: who is killed when it overflows, and what caution costs.

`python -m bench --traces FOLDER` takes the lengths of public traces, which
bench/public_traces.py names. Without them made-up requests of similar lengths stand in.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.public_traces import read_public_traces
from bench.result import Row, Section, at_most, none_of
from bench.simulation.balancers import CentralLine
from bench.simulation.job import Job
from bench.simulation.run import MakeBalancer, pilot
from bench.simulation.server import Clock, Hardware, Server

FOLDER: Path | None = None
PART = 1.0
"""The share of each public trace that is played, from its beginning."""
CONTEXTS_TOKENS = (8_192, 16_384, 32_768, 65_536)
MADE_UP_CONTEXTS_TOKENS = (8_192,)
SLOTS = 4
BACKLOG = 16
"""Requests that wait at any time: the server is never idle, and nobody sees all that will come."""
MAX_KILLED, MAX_TIME = 1, 1.15
"""Targets: of 10,000 requests, and as a part of the oracle's time."""
ESTIMATES, VARIATION = 0.8, 0.1
"""What the picker takes a prompt for, in the mean and as a part of its tokens."""
Lengths = list[tuple[int, int]]
"""Tokens of the prompt and of the answer."""


class TokenOracle(CentralLine):
    """First come, first served, with the true lengths: a request starts as soon as the tokens of
    all that run cannot exceed the context at any moment until they end."""

    def _serve(self, now: float) -> None:
        while self._line:
            free = [s for s in self._servers if s.load < s.hardware.slots]
            fitting = next((s for s in free if _fits(s, self._line[0], now)), None)
            if fitting is None:
                return
            fitting.take(self._line.popleft(), now)


def _fits(server: Server, job: Job, now: float) -> bool:
    """The tokens are most at the end of some request."""
    hardware, running = server.hardware, server.running.values()
    assert hardware.pool_tokens is not None
    prefill_at = max([now, *(one.notes["prefilled_at"] for one in running)])
    curves = [(prefill_at + hardware.prefill_s * job.prompt_tokens, job)]
    curves += [(one.notes["prefilled_at"], one) for one in running]
    ends = [since + hardware.decode_s * one.answer_tokens for since, one in curves]
    for at in ends:
        held = 0.0
        for (since, one), end in zip(curves, ends, strict=True):
            if end >= at:
                decoded = max(0.0, (at - since) / hardware.decode_s)
                held += one.prompt_tokens + min(decoded, one.answer_tokens)
        if held > hardware.pool_tokens:
            return False
    return True


POLICIES: dict[str, MakeBalancer] = {
    "slots only": CentralLine,
    "oracle": TokenOracle,
    "coxswain": pilot(until=1e12),
}


def shared_context(scale: float = 1.0, seed: int = 1) -> Section:
    """Killed, and the time for the whole trace, by policy."""
    rows: list[Row] = []
    contexts = MADE_UP_CONTEXTS_TOKENS if FOLDER is None else CONTEXTS_TOKENS
    for name, lengths in _traces(scale, seed).items():
        for context in contexts:
            fitting = [one for one in lengths if sum(one) < context]
            rows += _compare(f"{name}, {context:,}", fitting, context, seed)
    return Section(
        title="Shared context",
        method=f"one server whose {SLOTS} slots share one context, never idle; requests that fit "
        "alone; prefill at 1,500 tokens/s, one prompt at a time, answers at 30 tokens/s; killed "
        "requests do not come again; the oracle is first come, first served and knows each "
        "answer's length; coxswain has learned nothing at first, and takes a prompt for "
        f"{ESTIMATES:g} of its tokens in the mean, with a variation of {VARIATION:g}"
        + (
            ". The lengths are made up, as no traces were given"
            if FOLDER is None
            else f"; of each trace the first {PART:.0%}"
        ),
        rows=tuple(rows),
    )


def _compare(what: str, lengths: Lengths, context: int, seed: int) -> list[Row]:
    played = {name: play(lengths, context, make, seed) for name, make in POLICIES.items()}
    slots_only_s = played["slots only"][1]
    rows = [
        Row(
            what=f"{what}: {name}",
            value=f"killed {killed / len(lengths):.2%} of {len(lengths):,}, "
            f"{took_s / slots_only_s:.2f} of the time by slots only",
        )
        for name, (killed, took_s) in played.items()
    ]
    killed, took_s = played["coxswain"]
    rows.append(none_of(f"{what}: killed with the oracle", played["oracle"][0]))
    per_10_000 = 10_000 * killed / len(lengths)
    rows.append(at_most(f"{what}: killed of 10,000 with coxswain", per_10_000, MAX_KILLED))
    ratio = took_s / played["oracle"][1]
    rows.append(at_most(f"{what}: coxswain's time / the oracle's", ratio, MAX_TIME))
    return rows


def play(lengths: Lengths, context: int, make: MakeBalancer, seed: int) -> tuple[int, float]:
    """How many were killed, and when the last one ended."""
    clock = Clock()
    hardware = Hardware(
        slots=SLOTS,
        prefill_s=1 / 1500,
        decode_s=1 / 30,
        slowdown=0.0,
        fixed_s=0.0,
        has_one_prefill=True,
        cache_tokens=0,
        context_tokens=context,
        pool_tokens=context,
    )
    server = Server(0, hardware, clock)
    balancer = make([server], Random(seed))
    source = _jobs(lengths, seed)
    ended, killed = server.on_end, server.on_killed
    count = {False: 0, True: 0}

    def arrive(now: float) -> None:
        job = next(source, None)
        if job is not None:
            job.arrived_at = now
            balancer.arrive(job, now)
            assert job.rejection is None, job.rejection

    def on_end(job: Job, now: float) -> None:
        (killed if job.is_killed else ended)(job, now)
        count[job.is_killed] += 1
        arrive(now)

    server.on_end = server.on_killed = on_end
    for _ in range(SLOTS + BACKLOG):
        arrive(0.0)
    clock.run(lambda: sum(count.values()) < len(lengths))
    return count[True], clock.now


def _jobs(lengths: Lengths, seed: int) -> Iterator[Job]:
    random = Random(seed)
    for id_, (prompt, answer) in enumerate(lengths):
        yield Job(
            id=id_,
            arrived_at=0.0,
            prompt_tokens=prompt,
            answer_tokens=answer,
            estimated_tokens=1 + int(prompt * ESTIMATES * random.lognormvariate(0.0, VARIATION)),
            traits="/v1/chat/completions",
        )


def _traces(scale: float, seed: int) -> dict[str, Lengths]:
    if FOLDER is None:
        random = Random(seed)
        return {"like conversations": _similar(random, int(6_000 * scale), 1020, 0.6, 129, 0.66)}
    return {
        name: [
            (row.prompt_tokens, row.answer_tokens) for row in rows[: int(scale * PART * len(rows))]
        ]
        for name, rows in read_public_traces(FOLDER).items()
    }


def _similar(
    random: Random, count: int, prompt: float, prompt_sigma: float, answer: float, sigma: float
) -> Lengths:
    """Lognormal lengths with these medians."""
    prompts = [random.lognormvariate(math.log(prompt), prompt_sigma) for _ in range(count)]
    return [
        (1 + int(one), 1 + int(random.lognormvariate(math.log(answer), sigma))) for one in prompts
    ]
