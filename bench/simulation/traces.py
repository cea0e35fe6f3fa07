"""Streams of requests: plain ones, chats over shared system prompts, tenants, bursts."""

import heapq
import math
from collections.abc import Iterator
from random import Random

from bench.simulation.job import Job
from bench.simulation.server import BLOCK_TOKENS


def lognormal(random: Random, mean: float, variation: float) -> float:
    """A lognormal number with that mean and coefficient of variation."""
    sigma2 = math.log(1 + variation * variation)
    return random.lognormvariate(math.log(mean) - sigma2 / 2, math.sqrt(sigma2))


def plain(random: Random, count: int, rate: float, *, mean_s: float = 4.0) -> list[Job]:
    """Poisson arrivals; service times with coefficient of variation 1.5."""
    now = 0.0
    jobs = []
    for id_ in range(count):
        now += random.expovariate(rate)
        jobs.append(Job(id=id_, arrived_at=now, service_s=lognormal(random, mean_s, 1.5)))
    return jobs


def _blocks(chain: tuple[int, ...], tokens: int, random: Random) -> tuple[int, ...]:
    """A chain that goes on to that many tokens."""
    more = tokens // BLOCK_TOKENS - len(chain)
    return chain + tuple(random.getrandbits(60) for _ in range(more))


def chats(
    random: Random,
    count: int,
    rate: float,
    *,
    systems: int = 4,
    system_tokens: int = 600,
    turns: float = 6.0,
    pause_s: float = 20.0,
) -> list[Job]:
    """Conversations: each turn's prompt is the one before, its answer, and something new.

    `rate` is of turns. A conversation shares its beginning with others of its system prompt.
    """
    shared = [_blocks((), system_tokens, random) for _ in range(systems)]
    jobs: list[Job] = []
    coming: list[tuple[float, int, int, tuple[int, ...], int]] = []
    now, session = 0.0, 0
    next_start = 0.0
    while len(jobs) < count:
        if not coming or next_start <= coming[0][0]:
            now, next_start = next_start, next_start + random.expovariate(rate / turns)
            session += 1
            left = 1 + min(30, int(random.expovariate(1 / turns)))
            chain, tokens = random.choice(shared), system_tokens
            which = session
        else:
            now, which, left, chain, tokens = heapq.heappop(coming)
        asked = tokens + int(lognormal(random, 150, 1.0))
        answer = 1 + int(lognormal(random, 150, 1.0))
        chain = _blocks(chain, asked, random)
        after = _blocks(chain, asked + answer, random)
        jobs.append(
            Job(
                id=len(jobs),
                arrived_at=now,
                prompt_tokens=asked,
                answer_tokens=answer,
                blocks=chain,
                blocks_after=after,
                session=f"chat-{which}",
            )
        )
        if left > 1:
            pause = 5.0 + random.expovariate(1 / pause_s)
            heapq.heappush(coming, (now + pause, which, left - 1, after, asked + answer))
    return jobs


def hot(
    random: Random, count: int, rate: float, *, share: float = 0.5, prefix_tokens: int = 2000
) -> Iterator[Job]:
    """Of all requests, `share` begin alike; the others begin like nobody."""
    prefix = _blocks((), prefix_tokens, random)
    now = 0.0
    for id_ in range(count):
        now += random.expovariate(rate)
        tokens = prefix_tokens + int(lognormal(random, 300, 1.0))
        chain = _blocks(prefix if random.random() < share else (), tokens, random)
        answer = 1 + int(lognormal(random, 100, 1.0))
        yield Job(
            id=id_,
            arrived_at=now,
            prompt_tokens=tokens,
            answer_tokens=answer,
            blocks=chain,
            blocks_after=chain,
        )
