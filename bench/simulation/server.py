"""A llama-server as the simulation knows it: slots, speeds, a prompt cache, a hidden line.

The headers of its answers come with the first token or, as some builds send them, as soon as a
slot takes the request up (docs/decisions/0033-time-to-first-token-and-response-headers.md).

Prefill is linear in the tokens that are not cached, decoding slows as more slots are busy when
it begins. The cache keeps the most recently used blocks of ended requests. More requests than
slots wait in the server's own line, first come, first served, as llama.cpp defers them. A server
that dies takes what it has with it, and comes back as another process, with nothing cached.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from bench.simulation.job import Job

BLOCK_TOKENS = 64
Action = Callable[[float], None]


class Clock:
    """Virtual time: runs actions in order of their time; of two at one moment, the one that was
    set first."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._serial = count()

    def at(self, when: float, action: Action) -> None:
        heapq.heappush(self._due, (when, next(self._serial), action))

    def run(self) -> None:
        """Until nothing is due."""
        while self._due:
            self.now, _, action = heapq.heappop(self._due)
            action(self.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """`cache_tokens` is what the server really keeps; nobody outside can ask for it."""

    slots: int
    prefill_s: float = 0.0005
    decode_s: float = 0.02
    slowdown: float = 0.04
    fixed_s: float = 0.05
    cache_tokens: int = 100_000
    context_tokens: int = 8192
    has_early_headers: bool = False


class Server:
    """Runs jobs in virtual time; reports the headers and the end."""

    def __init__(self, index: int, hardware: Hardware, clock: Clock) -> None:
        self.index = index
        self.hardware = hardware
        self.running: dict[int, Job] = {}
        self.deferred: deque[Job] = deque()
        self.on_answer: Callable[[Job, float], None] = lambda job, now: None
        self.on_end: Callable[[Job, float], None] = lambda job, now: None
        self.on_lost: Callable[[Job, float], None] = lambda job, now: None
        self.on_return: Callable[[float], None] = lambda now: None
        self.is_up = True
        self.instance = 1
        self.clock = clock
        self._cache: OrderedDict[int, None] = OrderedDict()
        self.started = 0

    @property
    def load(self) -> int:
        """Requests that it has, running and deferred."""
        return len(self.running) + len(self.deferred)

    def take(self, job: Job, now: float) -> None:
        """A request arrives; it runs at once if a slot is free."""
        if len(self.running) < self.hardware.slots:
            self._start(job, now)
        else:
            self.deferred.append(job)

    def die(self, now: float) -> None:
        """Its clients learn of it at once."""
        self.is_up = False
        self._cache.clear()
        lost = [*self.running.values(), *self.deferred]
        self.running.clear()
        self.deferred.clear()
        for job in lost:
            job.lost_tries += 1
            job.started_at = job.answered_at = None
            self.on_lost(job, now)

    def come_back(self, now: float) -> None:
        self.is_up = True
        self.instance += 1
        self.on_return(now)

    def cached_tokens(self, job: Job) -> int:
        """How much of its prompt a job would find here now."""
        depth = 0
        for block in job.blocks:
            if block not in self._cache:
                break
            depth += 1
        return min(depth * BLOCK_TOKENS, max(0, job.prompt_tokens - 1))

    def _start(self, job: Job, now: float) -> None:
        hardware = self.hardware
        self.running[job.id] = job
        self.started += 1
        job.started_at = now
        job.cached_tokens = self.cached_tokens(job)
        for block in reversed(job.blocks[: job.cached_tokens // BLOCK_TOKENS]):
            self._cache.move_to_end(block)
        if job.service_s is not None:
            first_s = total_s = job.service_s
        else:
            first_s = hardware.fixed_s + hardware.prefill_s * (
                job.prompt_tokens - job.cached_tokens
            )
            token_s = hardware.decode_s * (1 + hardware.slowdown * (len(self.running) - 1))
            total_s = first_s + token_s * job.answer_tokens
            job.notes["token_s"] = token_s
        if hardware.has_early_headers:
            self._after(hardware.fixed_s / 2, job, self.on_answer)
        self._after(first_s, job, self._answer)
        self._after(total_s, job, self._end)

    def _after(self, seconds: float, job: Job, action: Callable[[Job, float], None]) -> None:
        """Unless it is lost before."""
        tries = job.lost_tries
        self.clock.at(
            self.clock.now + seconds,
            lambda now: action(job, now) if job.lost_tries == tries else None,
        )

    def _answer(self, job: Job, now: float) -> None:
        job.answered_at = now
        if not self.hardware.has_early_headers:
            self.on_answer(job, now)

    def _end(self, job: Job, now: float) -> None:
        job.ended_at = now
        del self.running[job.id]
        for block in reversed(job.blocks_after or job.blocks):
            self._cache[block] = None
            self._cache.move_to_end(block)
        while len(self._cache) * BLOCK_TOKENS > self.hardware.cache_tokens:
            self._cache.popitem(last=False)
        if self.deferred:
            self._start(self.deferred.popleft(), now)
        self.on_end(job, now)
