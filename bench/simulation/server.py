"""A llama-server as the simulation knows it: slots, speeds, a prompt cache, a hidden line.

The headers of its answers come with the first token or, as some builds send them, as soon as a
slot takes the request up (docs/decisions/0034-samples-of-the-latency-model.md).

Prefill is linear in the tokens that are not cached, decoding slows as more slots are busy when
it begins. The cache keeps the most recently used blocks of ended requests. More requests than
slots wait in the server's own line, first come, first served, as llama.cpp defers them. A server
that dies takes what it has with it, and comes back as another process, with nothing cached.

With `pool_tokens` the slots share one context, as those of a llama-server that was started without
`-np`: when the tokens in all busy slots exceed it, all of them end with an error and what is
deferred starts (docs/decisions/0214-what-an-overflow-does.md). A prompt is read at a steady pace,
with `has_one_prefill` only one at a time.
"""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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

    def run(self, is_going_on: Callable[[], bool] = lambda: True) -> None:
        """Until nothing is due, or `is_going_on` says so."""
        while self._due and is_going_on():
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
    pool_tokens: int | None = None
    has_one_prefill: bool = False
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
        self.on_killed: Callable[[Job, float], None] = lambda job, now: None
        self.on_lost: Callable[[Job, float], None] = lambda job, now: None
        self.on_return: Callable[[float], None] = lambda now: None
        self.is_up = True
        self.instance = 1
        self.clock = clock
        self._cache: OrderedDict[int, None] = OrderedDict()
        self._pool_changes = 0
        self._prefilled_at = 0.0
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
            if hardware.has_one_prefill:
                first_s += max(0.0, self._prefilled_at - now)
                self._prefilled_at = now + first_s
            token_s = hardware.decode_s * (1 + hardware.slowdown * (len(self.running) - 1))
            total_s = first_s + token_s * job.answer_tokens
            job.notes["token_s"] = token_s
            job.notes["prefilled_at"] = now + first_s
        if hardware.has_early_headers:
            self._after(hardware.fixed_s / 2, job, self.on_answer)
        self._after(first_s, job, self._answer)
        self._after(total_s, job, self._end)
        self._await_overflow(now)

    def _after(self, seconds: float, job: Job, action: Callable[[Job, float], None]) -> None:
        """Unless it is lost or killed before."""
        tries = job.lost_tries
        self.clock.at(
            self.clock.now + seconds,
            lambda now: action(job, now) if job.lost_tries == tries and not job.is_killed else None,
        )

    def held_tokens(self, job: Job, now: float) -> float:
        """What a running job has in its slot: of its prompt what is read, and its answer so far."""
        prefilled_at = job.notes["prefilled_at"]
        if now < prefilled_at:
            unread = (prefilled_at - now) / self.hardware.prefill_s
            return max(float(job.cached_tokens), job.prompt_tokens - unread)
        decoded = (now - prefilled_at) / job.notes["token_s"]
        return job.prompt_tokens + min(decoded, job.answer_tokens)

    def _await_overflow(self, now: float) -> None:
        """Find when the pool overflows if nothing starts or ends before: between two ends of
        prefills the tokens grow linearly."""
        pool_tokens = self.hardware.pool_tokens
        self._pool_changes += 1
        if pool_tokens is None or not self.running:
            return
        jobs = list(self.running.values())
        ends = [
            job.notes["prefilled_at"] + job.notes["token_s"] * job.answer_tokens for job in jobs
        ]
        turns = {job.notes["prefilled_at"] for job in jobs} | set(ends)
        turns |= {
            job.notes["prefilled_at"]
            - self.hardware.prefill_s * (job.prompt_tokens - job.cached_tokens)
            for job in jobs
        }
        first_end = min(ends)
        held = sum(self.held_tokens(job, now) for job in jobs)
        for until in sorted(turn for turn in turns if now < turn <= first_end):
            later = sum(self.held_tokens(job, until) for job in jobs)
            if later > pool_tokens:
                at = now + (until - now) * max(0.0, pool_tokens - held) / (later - held)
                self.clock.at(at, partial(self._overflow, self._pool_changes))
                return
            now, held = until, later

    def _overflow(self, serial: int, now: float) -> None:
        """All busy slots end with an error, unless something changed since this was foreseen; only
        then does anything that was deferred start."""
        if serial != self._pool_changes:
            return
        killed = list(self.running.values())
        self.running.clear()
        for job in killed:
            job.is_killed = True
            job.ended_at = now
        self._pool_changes += 1
        self._prefilled_at = now
        while self.deferred and len(self.running) < self.hardware.slots:
            self._start(self.deferred.popleft(), now)
        for job in killed:
            self.on_killed(job, now)

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
        self._await_overflow(now)
        if self.deferred:
            self._start(self.deferred.popleft(), now)
        self.on_end(job, now)
