"""One machine that holds some of its models at a time, event by event.

A model in use drains before it leaves; a load begins when there is memory for it. Copies are cheap,
so that an oracle can play out what would happen.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple, Self


class SwapModel(NamedTuple):
    """A model's memory, the seconds of its load, and its slots."""

    memory: int
    load_s: float
    slots: int


class SwapJob(NamedTuple):
    """A request: when it arrives, for which model, and the seconds of its service."""

    arrived_at: float
    model: int
    service_s: float


@dataclass
class SwapMachine:
    """`jobs` arrive in order. `wanted` is what a policy last decided."""

    models: Sequence[SwapModel]
    memory: int
    jobs: Sequence[SwapJob]
    is_first_come: bool = False
    """Nobody is served before an earlier request, of whatever model."""
    now: float = 0.0
    arrived: int = 0
    wanted: tuple[int, ...] = ()
    loaded_at: dict[int, float] = field(default_factory=dict)
    ready_at: dict[int, float] = field(default_factory=dict)
    running: dict[int, list[float]] = field(default_factory=dict)
    queues: dict[int, deque[int]] = field(default_factory=dict)
    used_at: dict[int, float] = field(default_factory=dict)
    waited_s: float = 0.0
    waits: list[float] = field(default_factory=list)
    swaps: int = 0

    def copy(self) -> Self:
        """The same moment, to be played on."""
        return type(self)(
            **{
                **self.__dict__,
                "loaded_at": dict(self.loaded_at),
                "ready_at": dict(self.ready_at),
                "running": {model: list(ends) for model, ends in self.running.items() if ends},
                "queues": {model: deque(queue) for model, queue in self.queues.items() if queue},
                "used_at": dict(self.used_at),
                "waits": [],
            }
        )

    @property
    def is_over(self) -> bool:
        return self.arrived == len(self.jobs) and not any(self.queues.values())

    @property
    def next_event_at(self) -> float:
        """When something happens by itself; infinite if nothing will."""
        found = self.jobs[self.arrived].arrived_at if self.arrived < len(self.jobs) else inf
        for at in self.ready_at.values():
            found = min(found, at)
        for ends in self.running.values():
            if ends:
                found = min(found, ends[0])
        return found

    @property
    def held(self) -> set[int]:
        """The models that have memory."""
        return {*self.loaded_at, *self.ready_at}

    def waiting(self) -> list[int]:
        """The models with queued requests, that of the oldest first."""
        found = [(queue[0], model) for model, queue in self.queues.items() if queue]
        return [model for _, model in sorted(found)]

    def waits_of(self, model: int) -> list[float]:
        """For how long each queued request of a model has waited, that of the oldest first."""
        return [self.now - self.jobs[job].arrived_at for job in self.queues[model]]

    def fits(self, models: Sequence[int] | set[int]) -> bool:
        return sum(self.models[model].memory for model in models) <= self.memory

    def step(self, tick_s: float) -> bool:
        """Go to the next event, or for `tick_s` while requests wait; what has loaded serves. False
        if nothing will ever happen."""
        at = self.next_event_at
        if any(self.queues.values()):
            at = min(at, self.now + tick_s)
        if at == inf:
            return False
        self._advance(at)
        self.want(self.wanted)
        return True

    def _advance(self, until: float) -> None:
        for queue in self.queues.values():
            self.waited_s += len(queue) * (until - self.now)
        self.now = until
        while self.arrived < len(self.jobs) and self.jobs[self.arrived].arrived_at <= until:
            self.queues.setdefault(self.jobs[self.arrived].model, deque()).append(self.arrived)
            self.arrived += 1
        for model, ends in self.running.items():
            while ends and ends[0] <= until:
                heappop(ends)
                self.used_at[model] = until
        for model in [model for model, at in self.ready_at.items() if at <= until]:
            del self.ready_at[model]
            self.loaded_at[model] = until

    def want(self, models: tuple[int, ...]) -> None:
        """Unload what is not in `models`, load what is, and serve."""
        self.wanted = models
        for model in self.held.difference(models):
            if model in self.ready_at:
                del self.ready_at[model]
            elif not self.running.get(model):
                del self.loaded_at[model]
        for model in models:
            held = self.held
            if model not in held and self.fits(held | {model}):
                self.ready_at[model] = self.now + self.models[model].load_s
                self.swaps += 1
        self._serve()

    def _serve(self) -> None:
        for model in self.waiting():
            queue = self.queues[model]
            while queue and self._has_slot(model):
                job = queue.popleft()
                self.waits.append(self.now - self.jobs[job].arrived_at)
                heappush(self.running.setdefault(model, []), self.now + self.jobs[job].service_s)
                self.used_at[model] = self.now
                if self.is_first_come and self.waiting()[:1] != [model]:
                    break
            if self.is_first_come and self.waiting()[:1] == [model]:
                return

    def _has_slot(self, model: int) -> bool:
        if model not in self.loaded_at or model not in self.wanted:
            return False
        return len(self.running.get(model, ())) < self.models[model].slots
