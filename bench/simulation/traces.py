"""Streams of requests: plain ones, chats over shared system prompts, agents, a hot prefix."""

import heapq
import math
from collections.abc import Iterator
from random import Random

from bench.simulation.job import Job
from bench.simulation.server import BLOCK_TOKENS

SERVICE_S = 4.0
TURNS = 6.0
"""Of a conversation, on average."""
PAUSE_S = 20.0
"""Between its turns, beside five seconds."""
SYSTEMS, SYSTEM_TOKENS = 4, 600
HOT_SHARE, HOT_TOKENS = 0.5, 2000
CALLS = (5, 25)
"""Of an agent, as often each number."""
AGENT_PAUSES_S = (1.0, 20.0)
"""Of an agent between the end of a call and the next one."""


def lognormal(random: Random, mean: float, variation: float) -> float:
    """A lognormal number with that mean and coefficient of variation."""
    sigma2 = math.log(1 + variation * variation)
    return random.lognormvariate(math.log(mean) - sigma2 / 2, math.sqrt(sigma2))


def plain(random: Random, count: int, rate: float) -> list[Job]:
    """Poisson arrivals; service times with mean `SERVICE_S`, coefficient of variation 1.5."""
    now = 0.0
    jobs = []
    for id_ in range(count):
        now += random.expovariate(rate)
        jobs.append(Job(id=id_, arrived_at=now, service_s=lognormal(random, SERVICE_S, 1.5)))
    return jobs


def blocks(chain: tuple[int, ...], tokens: int, random: Random) -> tuple[int, ...]:
    """A chain that goes on to that many tokens."""
    more = tokens // BLOCK_TOKENS - len(chain)
    return chain + tuple(random.getrandbits(60) for _ in range(more))


def chats(random: Random, count: int, rate: float) -> list[Job]:
    """Conversations: each turn's prompt is the one before, its answer, and something new.

    `rate` is of turns. A conversation shares its beginning with others of its system prompt.
    """
    shared = [blocks((), SYSTEM_TOKENS, random) for _ in range(SYSTEMS)]
    jobs: list[Job] = []
    coming: list[tuple[float, int, int, tuple[int, ...], int]] = []
    now, session = 0.0, 0
    next_start = 0.0
    while len(jobs) < count:
        if not coming or next_start <= coming[0][0]:
            now, next_start = next_start, next_start + random.expovariate(rate / TURNS)
            session += 1
            left = 1 + min(30, int(random.expovariate(1 / TURNS)))
            chain, tokens = random.choice(shared), SYSTEM_TOKENS
            which = session
        else:
            now, which, left, chain, tokens = heapq.heappop(coming)
        asked = tokens + int(lognormal(random, 150, 1.0))
        answer = 1 + int(lognormal(random, 150, 1.0))
        chain = blocks(chain, asked, random)
        after = blocks(chain, asked + answer, random)
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
            pause = 5.0 + random.expovariate(1 / PAUSE_S)
            heapq.heappush(coming, (now + pause, which, left - 1, after, asked + answer))
    return jobs


def agents(random: Random, count: int, rate: float) -> list[Job]:
    """Agents that start at `rate` a second. Each waits for its answer, pauses, and asks again: its
    prompt is the one before, the answer, and what a tool said. Their jobs are in order of agents.
    """
    shared = [blocks((), SYSTEM_TOKENS, random) for _ in range(SYSTEMS)]
    jobs: list[Job] = []
    now = 0.0
    for agent in range(count):
        now += random.expovariate(rate)
        after, tokens = random.choice(shared), SYSTEM_TOKENS
        asked = 1000.0 + lognormal(random, 1000, 1.0)
        before: Job | None = None
        for _ in range(random.randint(*CALLS)):
            tokens += int(asked)
            chain = blocks(after, tokens, random)
            answer = 1 + int(lognormal(random, 150, 1.0))
            after = blocks(chain, tokens + answer, random)
            job = Job(
                id=len(jobs),
                arrived_at=now if before is None else math.inf,
                prompt_tokens=tokens,
                answer_tokens=answer,
                blocks=chain,
                blocks_after=after,
                session=f"agent-{agent}",
                pause_s=random.uniform(*AGENT_PAUSES_S),
            )
            if before is not None:
                before.follower = job
            jobs.append(job)
            before, tokens, asked = job, tokens + answer, lognormal(random, 500, 1.0)
    return jobs


def hot(random: Random, count: int, rate: float) -> Iterator[Job]:
    """Of all requests, `HOT_SHARE` begin alike; the others begin like nobody."""
    prefix = blocks((), HOT_TOKENS, random)
    now = 0.0
    for id_ in range(count):
        now += random.expovariate(rate)
        tokens = HOT_TOKENS + int(lognormal(random, 300, 1.0))
        chain = blocks(prefix if random.random() < HOT_SHARE else (), tokens, random)
        answer = 1 + int(lognormal(random, 100, 1.0))
        yield Job(
            id=id_,
            arrived_at=now,
            prompt_tokens=tokens,
            answer_tokens=answer,
            blocks=chain,
            blocks_after=chain,
        )
