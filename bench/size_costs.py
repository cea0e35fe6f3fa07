"""What the order by size costs: the core alone, beside the order of arrival."""

import time
from itertools import count
from random import Random
from statistics import fmean, median

from bench.result import Say, Section, at_most
from bench.silent_fleet import SilentFleet, without_gc
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.request import Request
from extproc.core.scheduler.decision import Picked
from extproc.core.scheduler.dispatcher import DispatcherOptions
from extproc.core.slots.lease import LeaseEnd

ENDPOINTS = 100
QUEUED = 1_000
CALLS = 2_000
ROUNDS = 15
BOTH = (Discipline.FIRST_COME, Discipline.SHORTEST_EXPECTED)
APART_S = 0.001
"""Between requests: a thousand a second, of which fifty are learned from."""

Costs = tuple[float, float]
"""Processor time of a request that is picked at once, and of one that is queued, microseconds."""


async def measure(say: Say) -> Section:
    """Each round measures both orders, one after the other, and each second one begins with the
    other: the memory that the first one leaves slows the next."""
    ratios: list[tuple[float, float]] = []
    for number in range(ROUNDS):
        say(f"sizes: round {number + 1} of {ROUNDS}")
        costs = {
            discipline: _Fleet(QueueOrder(discipline=discipline), number).measure()
            for discipline in (BOTH if number % 2 == 0 else reversed(BOTH))
        }
        first, by_size = (costs[discipline] for discipline in BOTH)
        ratios.append((by_size[0] / first[0], by_size[1] / first[1]))
    what = ("picked at once, and released", "queued, assigned, and released")
    return Section(
        title="Costs of the order by size",
        method=f"the core alone, {ENDPOINTS} endpoints, {1 / APART_S:,.0f} requests/s with prompts "
        f"of 16 blocks, {QUEUED:,} queued; means of {CALLS:,} requests, medians of {ROUNDS} "
        "rounds; ratios to the order of arrival",
        rows=tuple(
            at_most(name, median(ratio[index] for ratio in ratios), 1.15)
            for index, name in enumerate(what)
        ),
    )


class _Fleet(SilentFleet):
    """A dispatcher with chats of ten system prompts and four tenants."""

    def __init__(self, order: QueueOrder, seed: int) -> None:
        self._random = Random(seed)
        self._now = 100.0
        self._ids = count()
        options = DispatcherOptions(queue_max_requests=2 * QUEUED, order=order, stale_after_s=1e9)
        super().__init__(self._random, options, ENDPOINTS, lambda: 4)
        self._open: list[Picked] = []

    def measure(self) -> Costs:
        for _ in range(2 * ENDPOINTS):
            self._submit()
        with without_gc():
            picked_us = self._run()
            for _ in range(2 * ENDPOINTS + QUEUED):
                self._submit()
            return picked_us, self._run()

    def _run(self) -> float:
        """Requests come as others end; returns the mean cost of both."""
        taken_us = []
        for _ in range(CALLS):
            request, index = self._request(), self._random.randrange(len(self._open))
            lease = self._open[index].lease
            self._now += APART_S
            self.dispatcher.answered(lease, self._now, is_stream=True)
            began = time.thread_time_ns()
            outcome = self.dispatcher.submit(request, self._now)
            self.dispatcher.release(lease, LeaseEnd.SERVED, self._now)
            taken_us.append((time.thread_time_ns() - began) / 1000)
            self._open[index] = outcome if isinstance(outcome, Picked) else self.picked.pop()
        return fmean(taken_us)

    def _submit(self) -> None:
        outcome = self.dispatcher.submit(self._request(), self._now)
        if isinstance(outcome, Picked):
            self._open.append(outcome)

    def _request(self) -> Request:
        system, unique = self._random.randrange(10), next(self._ids)
        return Request(
            id="bench",
            timeout_s=1e6,
            traits="/v1/chat/completions",
            tenant=str(self._random.randrange(4)),
            prompt_tokens=1024,
            max_tokens=512,
            prompt_blocks=(
                *range(1000 * system, 1000 * system + 8),
                *range(-unique * 8, 8 - unique * 8),
            ),
        )
