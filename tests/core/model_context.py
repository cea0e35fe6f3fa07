"""A model of a llama-server whose slots share one context, and of the requests that use it.

Time passes in steps of a token. Each task that runs generates one token a step. When they would
hold more than the context, all of them fail at once, as they do there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from random import Random

from extproc.core.address import Address
from extproc.core.decision import Picked, Queued, Settlement
from extproc.core.fleet.endpoint import ContextSharing, EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.observation import Observation, ScrapeStatus, SlotReading
from extproc.core.queue.limits import QueueLimits
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Rejected
from extproc.core.request import Request
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import Lease, LeaseEnd
from tests.fakes.core_events import listen

TOKEN_S = 0.02
CHARS_PER_TOKEN = 4
TRAITS = "/v1/chat/completions"


@dataclass
class Task:
    prompt: int
    answer: int
    arrives_at: float
    lease: Lease | None = None
    number: int = -1
    decoded: int = 0
    leaves_after: int | None = None
    is_streaming: bool = False

    @property
    def held(self) -> int:
        return self.prompt + self.decoded


@dataclass
class ContextServer:
    address: Address
    slots: int
    context_tokens: int
    tasks: list[Task] = field(default_factory=list)
    waiting: list[Task] = field(default_factory=list)
    overflows: int = 0
    most_held: int = 0
    _numbers: count[int] = field(default_factory=count)

    def take(self, task: Task) -> None:
        self.waiting.append(task)

    def step(self, now: float) -> tuple[list[Task], list[Task]]:
        """One token for each; returns the tasks that have ended, and those that failed."""
        for task in [each for each in self.waiting if each.arrives_at <= now]:
            if len(self.tasks) < self.slots:
                self.waiting.remove(task)
                task.number = next(self._numbers)
                self.tasks.append(task)
        held = sum(task.held for task in self.tasks) + len(self.tasks)
        if held > self.context_tokens:
            failed, self.tasks = self.tasks, []
            self.overflows += 1
            return [], failed
        self.most_held = max(self.most_held, held)
        for task in self.tasks:
            task.decoded += 1
        ended = [task for task in self.tasks if task.decoded >= task.answer]
        self.tasks = [task for task in self.tasks if task.decoded < task.answer]
        return ended, []

    def drop(self, task: Task) -> None:
        self.tasks = [each for each in self.tasks if each is not task]
        self.waiting = [each for each in self.waiting if each is not task]

    def readings(self) -> tuple[SlotReading, ...]:
        return tuple(
            SlotReading(
                task_id=task.number,
                prompt_tokens=task.held,
                cached_tokens=0,
                processed_tokens=task.prompt,
                decoded_tokens=task.decoded,
                remaining_tokens=None,
            )
            for task in self.tasks
        )


class ContextFleet:
    """Drives a dispatcher in front of such servers. Our view of them is late in both directions:
    requests arrive, ends are reported and scrapes are answered some tokens later."""

    def __init__(
        self,
        random: Random,
        *contexts: int,
        slots: int = 4,
        setting: ContextSharing = ContextSharing.SHARED,
    ) -> None:
        self.random = random
        self.now = 100.0
        self.wake_up_at: float | None = None
        self.requests = 0
        self.killed = 0
        self.finished = 0
        self.answers: dict[str, tuple[int, int | None]] = {}
        self.waiting: dict[int, Ticket] = {}
        self.running: dict[int, Task] = {}
        self.reported: list[tuple[float, Lease, LeaseEnd]] = []
        self.scrapes: list[tuple[float, Observation]] = []
        self.dispatcher = listen(
            Dispatcher(
                random,
                DispatcherOptions(
                    queue=QueueLimits(max_requests=10_000), health=HealthOptions(stale_after_s=1e9)
                ),
            ),
            self,
        )
        self.servers = [
            ContextServer(Address("10.0.0.1", 8000 + index), slots, context)
            for index, context in enumerate(contexts)
        ]
        specs = [EndpointSpec(address=one.address, context=setting) for one in self.servers]
        self.dispatcher.set_members("test", specs, self.now)
        for server in self.servers:
            self.dispatcher.observe(self._scrape(server), self.now)

    def show_prompts(self) -> None:
        """Prompts are as long as they are estimated to be, and that is known."""
        request = Request(id="r", timeout_s=1.0, prompt_tokens=10_000, traits=TRAITS)
        for _ in range(200):
            self.dispatcher.state.prompt_sizes.record_most("", request, 10_000)

    # The listener's side

    def settled(self, ticket: Ticket, settlement: Settlement) -> None:
        del self.waiting[ticket.id]
        self._take(ticket.request, settlement)

    def wake_at(self, when: float) -> None:
        self.wake_up_at = when if self.wake_up_at is None else min(self.wake_up_at, when)

    def membership_changed(self) -> None:
        pass

    def unsure_of(self, address: Address) -> None:
        pass

    # Events

    def submit(
        self,
        prompt: int,
        answer: int,
        *,
        leaves_after: int | None = None,
        max_tokens: int | None = None,
        timeout_s: float = 1e6,
    ) -> str:
        self.requests += 1
        request = Request(
            id=str(self.requests),
            timeout_s=timeout_s,
            prompt_tokens=prompt,
            prompt_chars=prompt * CHARS_PER_TOKEN,
            max_tokens=max_tokens,
            traits=TRAITS,
        )
        self.answers[request.id] = (answer, leaves_after)
        outcome = self.dispatcher.submit(request, self.now)
        if isinstance(outcome, Queued):
            self.waiting[outcome.ticket.id] = outcome.ticket
        else:
            self._take(request, outcome)
        return request.id

    def foreign(self, server: ContextServer, prompt: int, answer: int) -> None:
        """A request of others, if a slot is free: they look where they send it."""
        if len(server.tasks) + len(server.waiting) < server.slots:
            server.take(Task(prompt, answer, self.now))

    def _take(self, request: Request, settlement: Settlement) -> None:
        assert not isinstance(settlement, Rejected), settlement
        assert isinstance(settlement, Picked)
        lease = settlement.lease
        answer, leaves_after = self.answers[request.id]
        assert request.prompt_tokens is not None
        transit_s = TOKEN_S * self.random.randrange(3)
        task = Task(request.prompt_tokens, answer, self.now + transit_s, lease)
        task.leaves_after = leaves_after
        self.running[lease.id] = task
        self._server(lease).take(task)

    def _server(self, lease: Lease) -> ContextServer:
        return next(one for one in self.servers if one.address == lease.address)

    def step(self) -> None:
        """A token's time passes everywhere."""
        self.now += TOKEN_S
        for server in self.servers:
            ended, failed = server.step(self.now)
            for task in ended:
                self._end(task, LeaseEnd.SERVED)
            for task in failed:
                self.killed += task.lease is not None
                self._end(task, LeaseEnd.SERVED, is_error=True)
            for task in list(server.tasks):
                if task.lease is None:
                    continue
                if not task.is_streaming:
                    task.is_streaming = True
                    self.dispatcher.responded(task.lease, self.now)
                if task.decoded == task.leaves_after:
                    server.drop(task)
                    self._end(task, LeaseEnd.ABANDONED)
            if self.random.random() < 0.1:
                late_s = TOKEN_S * self.random.randrange(8)
                self.scrapes.append((self.now + late_s, self._scrape(server)))
        for due in [each for each in self.reported if each[0] <= self.now]:
            self.reported.remove(due)
            self.dispatcher.release(due[1], due[2], self.now)
        for late in [each for each in self.scrapes if each[0] <= self.now]:
            self.scrapes.remove(late)
            self.dispatcher.observe(late[1], self.now)
        if self.wake_up_at is not None and self.wake_up_at <= self.now:
            self.wake_up_at = None
            self.dispatcher.advance(self.now)

    def _end(self, task: Task, end: LeaseEnd, *, is_error: bool = False) -> None:
        if task.lease is None:
            return
        del self.running[task.lease.id]
        self.finished += end is LeaseEnd.SERVED and not is_error
        if not task.is_streaming or is_error:
            self.dispatcher.responded(task.lease, self.now, is_error=is_error)
        late_s = TOKEN_S * self.random.randrange(3)
        self.reported.append((self.now + late_s, task.lease, end))

    def _scrape(self, server: ContextServer) -> Observation:
        return Observation(
            address=server.address,
            began_at=self.now,
            answered_at=self.now,
            status=ScrapeStatus.READY,
            slots=server.slots,
            busy_slots=len(server.tasks),
            slot_readings=server.readings(),
            context_tokens=server.context_tokens,
        )

    def run_until_idle(self, most_steps: int = 1_000_000) -> None:
        for _ in range(most_steps):
            if not (self.waiting or self.running or self.reported):
                return
            self.step()
        raise AssertionError(f"{len(self.waiting)} wait and {len(self.running)} run for ever")
