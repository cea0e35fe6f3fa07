"""The true state of the server at one address, which a ledger can only scrape."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from extproc.core.address import Address
from extproc.core.observation import ModelReading, Observation, ScrapeStatus, SlotReading
from extproc.core.slots.lease import Lease

NEVER = float("inf")


@dataclass
class ModelTask:
    """One request at a server: it arrives, is started soon after, and runs until it ends. It has a
    task number for each of its slots, drawn when it is started."""

    weight_slots: int
    arrives_at: float
    ends_at: float = NEVER
    numbers: tuple[int, ...] = ()

    def is_running(self, now: float) -> bool:
        return self.arrives_at <= now < self.ends_at


@dataclass
class ModelServer:
    """Requests arrive a moment after they were picked, and linger after their client left.

    Like llama-server during a batch, it may answer a scrape before it starts requests that arrived
    before that scrape.
    """

    address: Address
    slots: int
    is_blind: bool = False
    has_numbers: bool = True
    foreign: int = 0
    process: int = 1
    models: Any = ()
    model: str = ""
    arrivals: dict[int, float] = field(default_factory=dict)  # by lease id
    tasks: dict[int, ModelTask] = field(default_factory=dict)  # by lease id
    _numbers: count[int] = field(default_factory=count)
    _foreign_numbers: list[int] = field(default_factory=list)

    def take(self, lease: Lease, arrives_at: float) -> None:
        self.tasks[lease.id] = ModelTask(self._weight_of(lease), arrives_at)
        self.arrivals[lease.id] = arrives_at

    def _weight_of(self, lease: Lease) -> int:
        return lease.weight_slots

    def let_go(self, lease: Lease) -> None:
        """The request is over; after a restart it is not known here any more."""
        self.tasks.pop(lease.id, None)

    def linger(self, lease: Lease, until: float) -> None:
        """Its client left: the server finishes its step first, unless it was restarted."""
        task = self.tasks.get(lease.id)
        if task is not None:
            task.ends_at = until

    def restart(self, slots: int, *, is_blind: bool) -> None:
        """A new process at the same address: nothing of the old one is left."""
        self.slots, self.is_blind, self.foreign = slots, is_blind, 0
        self.process += 1
        self.tasks.clear()
        self._foreign_numbers.clear()
        self._numbers = count()

    def is_here(self, lease: Lease, now: float) -> bool:
        return self.arrivals[lease.id] <= now

    def forget_ended(self, now: float) -> None:
        for id_ in [id_ for id_, task in self.tasks.items() if task.ends_at <= now]:
            del self.tasks[id_]

    def busy_ours(self, now: float) -> int:
        return sum(task.weight_slots for task in self.tasks.values() if task.is_running(now))

    def busy(self, now: float) -> int:
        return min(self.slots, self.busy_ours(now) + self.foreign)

    def coming(self, now: float) -> int:
        """Slots of requests in transit."""
        return sum(task.weight_slots for task in self.tasks.values() if task.arrives_at > now)

    def is_overrun(self, now: float) -> bool:
        """Whether more of our requests are here than it has slots for."""
        return self.busy_ours(now) > self.slots

    def start(self, now: float) -> None:
        """Start what has arrived, in that order; foreign requests are started last."""
        self.forget_ended(now)
        arrived = [task for task in self.tasks.values() if task.is_running(now)]
        for task in sorted(arrived, key=lambda task: task.arrives_at):
            if not task.numbers:
                task.numbers = tuple(next(self._numbers) for _ in range(task.weight_slots))
        del self._foreign_numbers[self.foreign :]
        while len(self._foreign_numbers) < self.foreign:
            self._foreign_numbers.append(next(self._numbers))

    def shown(self, now: float) -> tuple[int, ...]:
        """The numbers of the tasks in its slots."""
        ours = [n for task in self.tasks.values() if task.is_running(now) for n in task.numbers]
        return tuple(sorted(ours)[: self.slots] + self._foreign_numbers)[: self.slots]

    def readings(self, shown: tuple[int, ...]) -> tuple[SlotReading, ...]:
        numbers = shown if self.has_numbers else ()
        return tuple(SlotReading(task_id=number, model=self.model) for number in numbers)

    def report(self, now: float, *, is_late: bool = False) -> dict[str, Any]:
        """What a scrape would see now; `is_late` if the last arrivals are started after it."""
        if not is_late or not self.shown(now):
            self.start(now)
        shown = self.shown(now)
        self.start(now)
        return {
            "status": ScrapeStatus.READY,
            "slots": self.slots,
            "busy_slots": None if self.is_blind else len(shown),
            "slot_readings": () if self.is_blind else self.readings(shown),
            "instance": str(self.process),
            "models": tuple(ModelReading(name=name) for name in self.models),
        }


@dataclass
class ModelScrape:
    """A scrape in transit: it sees the true state at one moment between request and response."""

    server: ModelServer
    began_at: float
    seen: dict[str, Any] | None = None

    def see(self, now: float, *, is_late: bool = False) -> None:
        self.seen = self.server.report(now, is_late=is_late)

    def observation(self, now: float) -> Observation:
        assert self.seen is not None
        return Observation(
            address=self.server.address, began_at=self.began_at, answered_at=now, **self.seen
        )
