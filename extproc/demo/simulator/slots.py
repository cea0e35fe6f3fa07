"""The slots of a simulated server, and its hidden queue.

As in llama.cpp:
- A task that finds no free slot is deferred silently, in order of arrival, without a limit.
- A task whose client left keeps its slot until its current step ends. The prefill is one step,
  each token is one.
- A free slot whose cache has the beginning of the prompt is preferred, and processes only the
  rest; otherwise the slot that has been idle for longest.
- With `kept_prompts`, the caches that slots lose are kept outside, as `--cache-ram` does.
- In a shared context the tokens in all slots together are limited. Idle slots are cleared when a
  task starts; their prompts are kept outside, as with `--cache-ram`. If the tokens in the busy
  slots exceed the context, all of these end with an error, and deferred tasks start
  (docs/decisions/0214-what-an-overflow-does.md).
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

MAX_CACHED_BYTES = 65_536
DEFERRED = "no slot is available, defer task"
"""What llama-server logs of a task that waits in it."""
MIN_SIMILARITY = 0.1
"""The share of a prompt that must be cached for its slot to be chosen: llama-server's default of
`--slot-prompt-similarity`."""


@dataclass(slots=True, kw_only=True, eq=False)
class Task:
    """One generation: its prompt, the number of its tokens, and its duration.

    `tokens` may be 0 (an embedding): then `answer_s` passes once. `parent` is the first task of the
    same request, whose prompt it shares in a shared context. The slots set the other attributes;
    times are in seconds of the event loop's clock.
    """

    prompt: bytes
    tokens: int
    answer_s: float
    params: dict[str, object]
    parent: "Task | None" = None
    id: int = -1
    slot_id: int = -1
    cached_tokens: int = 0
    decoded: int = 0
    began_at: float = 0.0
    prefilled_at: float = 0.0
    ended_at: float = 0.0
    is_cancelled: bool = False
    is_killed: bool = False
    is_ended: bool = False
    _read: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def prompt_tokens(self) -> int:
        """One token for each byte, and one for the beginning of the text."""
        return len(self.prompt) + 1

    async def steps(self) -> AsyncIterator[int]:
        """Yield each token's number (from 0) as soon as it exists; ends when the task does."""
        sent = 0
        while True:
            while sent < self.decoded:
                yield sent
                sent += 1
            if self.is_ended:
                return
            self._changed.clear()
            await self._changed.wait()

    async def prefill_ended(self) -> None:
        """Wait for the end of the prefill."""
        await self._read.wait()

    async def ended(self) -> None:
        """Wait for the end of the task."""
        async for _ in self.steps():
            pass

    def end_prefill(self) -> None:
        self._read.set()

    def add_token(self) -> None:
        """Count one more token."""
        self.decoded += 1
        self._changed.set()

    def end(self, now: float) -> None:
        """End the task, complete or not."""
        self.ended_at = now
        self.is_ended = True
        self._read.set()
        self._changed.set()


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One slot; `last` is its current task or, if it is idle, its last one. `kept_tokens` are what
    it holds while it is idle."""

    id: int
    last: Task | None = None
    is_processing: bool = False
    cached: bytes = b""
    kept_tokens: int = 0
    freed_at: float = 0.0

    @property
    def held_tokens(self) -> int:
        """The tokens in it now: of its task if it is busy, otherwise what is left."""
        if not self.is_processing or self.last is None:
            return self.kept_tokens
        return self.last.prompt_tokens + self.last.decoded


class Slots:
    """A fixed number of slots and the queued tasks. Belongs to one event loop."""

    def __init__(
        self,
        count: int,
        *,
        prompt_tokens_per_second: float,
        pool_tokens: int | None = None,
        kept_prompts: int = 0,
        logs_deferred: bool = False,
    ) -> None:
        """`pool_tokens` is the context that all slots share, None if each has its own;
        `kept_prompts` are kept outside the slots."""
        self.all = tuple(Slot(id=number) for number in range(count))
        self._pool_tokens = pool_tokens
        self._pace = prompt_tokens_per_second
        self._most_kept = kept_prompts
        self._kept: dict[bytes, None] = {}
        """The caches that slots no longer hold, the newest last."""
        self._logs_deferred = logs_deferred
        self._deferred: dict[Task, None] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()

    @property
    def deferred(self) -> int:
        """How many tasks wait for a slot."""
        return len(self._deferred)

    async def between_steps(self) -> None:
        """Wait for the end of the current prefills; without one, return at once."""
        for task in [slot.last for slot in self.all if slot.is_processing]:
            if task is not None:
                await task.prefill_ended()

    def submit(self, task: Task) -> None:
        """Start the task on a free slot, or put it at the end of the queue. Returns at once."""
        task.id = next(self._numbers)
        if any(not slot.is_processing for slot in self.all):
            self._start(task)
        else:
            self._deferred[task] = None
            if self._logs_deferred:
                print(f"{DEFERRED}, id_task = {task.id}", flush=True)  # its log

    def cancel(self, task: Task) -> None:
        """The client left: remove the task from the queue at once, from a slot after its step."""
        task.is_cancelled = True
        if task in self._deferred:
            del self._deferred[task]
            task.end(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Stop all tasks."""
        self._deferred.clear()
        for runner in self._running:
            runner.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _start(self, task: Task) -> None:
        slot = self._choose(task.prompt)
        known = self._load_cache(slot, task.prompt)
        # The last token is always computed again: the first token follows from it.
        task.cached_tokens = min(known + 1, task.prompt_tokens - 1) if slot.cached else 0
        task.slot_id = slot.id
        slot.last = task
        slot.is_processing = True
        if self._pool_tokens is not None:
            for idle in self.all:
                idle.kept_tokens = 0
        runner = asyncio.create_task(self._run(slot, task))
        self._running.add(runner)
        runner.add_done_callback(self._running.discard)

    def _load_cache(self, slot: Slot, prompt: bytes) -> int:
        """Let the slot have the kept cache that begins most like the prompt, if its own begins less
        like it; returns the number of equal bytes."""
        known = _common_beginning(slot.cached, prompt)
        if not self._most_kept:
            return known
        if slot.cached and known < len(slot.cached):
            self._kept.pop(slot.cached, None)
            self._kept[slot.cached] = None
        best = max(self._kept, key=lambda one: _common_beginning(one, prompt), default=b"")
        common = _common_beginning(best, prompt)
        if common > known:
            slot.cached, known = best, common
        while len(self._kept) > self._most_kept:
            del self._kept[next(iter(self._kept))]
        return known

    def _choose(self, prompt: bytes) -> Slot:
        """The idle slot with the longest common beginning, or if none is similar, the one that has
        been idle for the longest time, as llama-server does."""

        def rank(slot: Slot) -> tuple[int, float]:
            common = _common_beginning(slot.cached, prompt)
            return (common if common > MIN_SIMILARITY * len(prompt) else 0, -slot.freed_at)

        return max((slot for slot in self.all if not slot.is_processing), key=rank)

    async def _run(self, slot: Slot, task: Task) -> None:
        loop = asyncio.get_running_loop()
        try:
            task.began_at = loop.time()
            task.prefilled_at = (
                task.began_at + (task.prompt_tokens - task.cached_tokens) / self._pace
            )
            await asyncio.sleep(task.prefilled_at - loop.time())
            if not task.is_killed:
                self._check_pool(0)
            task.end_prefill()
            for step in range(1, max(1, task.tokens) + 1):
                if task.is_cancelled or task.is_killed:
                    break
                due = task.prefilled_at + step * task.answer_s / max(1, task.tokens)
                await asyncio.sleep(max(0.0, due - loop.time()))
                if task.tokens and not task.is_killed:
                    self._check_pool(1)
                if task.tokens and not task.is_killed:
                    task.add_token()
        finally:
            if not task.is_killed:
                slot.kept_tokens = slot.held_tokens
                slot.cached = task.prompt[:MAX_CACHED_BYTES]
                self._free(slot, task)
        self._start_deferred()

    def _free(self, slot: Slot, task: Task) -> None:
        slot.freed_at = asyncio.get_running_loop().time()
        slot.is_processing = False
        task.end(slot.freed_at)

    def _start_deferred(self) -> None:
        while self._deferred and any(not slot.is_processing for slot in self.all):
            following = next(iter(self._deferred))
            del self._deferred[following]
            self._start(following)

    def _check_pool(self, more: int) -> None:
        """End all tasks that run, if the shared context has no room for `more` tokens."""
        if self._pool_tokens is None:
            return
        busy = [slot for slot in self.all if slot.is_processing]
        tasks = [slot.last for slot in busy if slot.last is not None]
        prompts = {task.parent or task: task.prompt_tokens for task in tasks}
        held = sum(prompts.values()) + sum(task.decoded for task in tasks)
        if held + more <= self._pool_tokens:
            return
        for slot, task in zip(busy, tasks, strict=True):
            task.is_killed = True
            slot.kept_tokens, slot.cached = 0, b""
            self._free(slot, task)
        self._start_deferred()


def _common_beginning(one: bytes, other: bytes) -> int:
    """The number of equal bytes at the beginning of both."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    low, high = 0, length
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
