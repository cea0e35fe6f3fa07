"""Claims about extproc/core/views/scale_advisor.py, through the dispatcher."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import exp
from random import Random

import pytest

from extproc.core.address import Address
from extproc.core.decision import Picked, Queued
from extproc.core.events import Settled
from extproc.core.fleet.endpoint import EndpointSpec
from extproc.core.fleet.health import HealthOptions
from extproc.core.fleet.resolver import ResolverOptions
from extproc.core.objective import Objective, Objectives
from extproc.core.observation import ModelReading, Observation, ScrapeStatus
from extproc.core.request import Request
from extproc.core.scaling.wanted import Cause, ScaleOptions, ServerBounds
from extproc.core.scheduler.dispatcher import Dispatcher, DispatcherOptions
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.views.scale_advisor import ModelScale

QWEN = ModelReading(name="qwen", aliases=("chat",), is_loaded=True)
OPTIONS = ScaleOptions(target_wait_s=5.0, idle_s=120.0, down_after_s=60.0)


@dataclass
class Fleet:
    """Servers of 4 slots that start and stop, and requests of random length, in simulated time."""

    options: ScaleOptions = OPTIONS
    service_s: float = 4.0
    start_s: float = 20.0
    objectives: Objectives = field(default_factory=Objectives)
    now: float = 1000.0
    count: int = 0

    def __post_init__(self) -> None:
        self.random = Random(7)
        resolver = ResolverOptions(objectives=self.objectives)
        self.dispatcher = Dispatcher(
            Random(1),
            DispatcherOptions(
                resolver=resolver, scale=self.options, health=HealthOptions(stale_after_s=1e9)
            ),
        )
        self.ends: list[tuple[float, Lease]] = []
        self.starting: list[float] = []
        self.waits: list[float] = []

    def serve(self, *models: ModelReading, servers: int = 1, first: int = 1) -> None:
        """Replace the servers."""
        self.count = servers
        addresses = [Address.of("10.0.0.1", 8000 + first + one) for one in range(servers)]
        specs = [EndpointSpec(address=address) for address in addresses]
        self.dispatcher.set_members("test", specs, self.now)
        for address in addresses:
            self.dispatcher.observe(
                Observation(
                    address=address,
                    began_at=self.now,
                    answered_at=self.now,
                    status=ScrapeStatus.READY,
                    slots=4,
                    busy_slots=len(self.dispatcher.ledger.endpoint_slots(address).leases),
                    models=models,
                ),
                self.now,
            )
        self.take()

    def declare(self) -> None:
        readings = dict.fromkeys(("qwen", "chat"), QWEN)
        self.dispatcher.set_loadable("test", readings, self.now)

    def ask(self, model: str | None = "qwen", objective: str | None = None) -> bool:
        """A request; returns whether it got a slot at once."""
        request = Request(id="r", timeout_s=1e6, model=model, objective=objective)
        decision = self.dispatcher.submit(request, self.now)
        assert isinstance(decision, Picked | Queued)
        if isinstance(decision, Picked):
            self.begin(decision)
        self.take()
        return isinstance(decision, Picked)

    def begin(self, picked: Picked) -> None:
        self.waits.append(picked.waited_s)
        self.ends.append((self.now + self.random.expovariate(1 / self.service_s), picked.lease))

    def take(self) -> None:
        for event in self.dispatcher.take_events():
            if isinstance(event, Settled) and isinstance(event.settlement, Picked):
                self.begin(event.settlement)

    def end_all(self) -> None:
        for _, lease in self.ends:
            self.end(lease)
        self.ends.clear()

    def end(self, lease: Lease) -> None:
        self.dispatcher.responded(lease, self.now, is_stream=False)
        self.dispatcher.release(lease, LeaseEnd.SERVED, self.now)
        self.take()

    def step(self, per_s: float) -> int:
        """A second with that many arrivals on average, and servers that follow; returns how many
        are wanted."""
        self.now += 1.0
        for at, lease in [one for one in self.ends if one[0] <= self.now]:
            self.ends.remove((at, lease))
            self.end(lease)
        chance = self.random.random()
        while chance > exp(-per_s):  # Poisson, after Knuth
            self.ask()
            chance *= self.random.random()
        wanted = self.scale().wanted
        while self.count + len(self.starting) < wanted:
            self.starting.append(self.now + self.start_s)
        ready = sum(at <= self.now for at in self.starting)
        self.starting = [at for at in self.starting if at > self.now]
        if ready or wanted < self.count:
            self.serve(QWEN, servers=min(self.count + ready, max(wanted, 0)))
        return wanted

    def scale(self, objective: str | None = None, model: str = "qwen") -> ModelScale:
        return self.dispatcher.view.scale(self.now, objective)[model]


def test_steps_of_arrivals_are_followed_without_thrash() -> None:
    """From zero, up in steps, down, and to zero after the idle time; a change of direction takes
    `down_after_s`."""
    fleet = Fleet()
    fleet.declare()
    wanted: list[int] = []
    waits: list[list[float]] = []
    assert fleet.scale().wanted == 0
    for per_s, seconds in ((0.2, 300), (2.0, 600), (6.0, 600), (0.5, 600)):
        for second in range(seconds):
            if second == seconds // 3:
                fleet.waits.clear()  # it has settled
            wanted.append(fleet.step(per_s))
        waits.append(list(fleet.waits))
    for each in waits:
        assert sum(each) / len(each) <= OPTIONS.target_wait_s
    assert 2 <= max(wanted[600:900]) <= 4, "2 a second for 4 s are 8 busy slots"
    assert 6 <= max(wanted[1200:1500]) <= 10, "6 a second for 4 s are 24 busy slots"
    assert wanted[-1] <= 2
    assert all(one > 0 for one in wanted[wanted.index(1) :])
    falls = [at for at, (a, b) in enumerate(pairwise(wanted)) if b < a]
    rises = [at for at, (a, b) in enumerate(pairwise(wanted)) if b > a]
    for rise in rises:
        assert all(not rise < fall < rise + OPTIONS.down_after_s for fall in falls)
    assert len(falls) + len(rises) <= 40, "in 35 minutes of random arrivals"
    assert sum(fleet.step(0.0) > 0 for _ in range(600)) <= OPTIONS.idle_s + 60.0
    assert fleet.count == 0 and fleet.scale().cause is Cause.IDLE


def test_at_least_one_while_anything_waits_or_runs() -> None:
    fleet = Fleet()
    fleet.declare()
    fleet.ask("chat")
    fleet.now += 1e5
    assert fleet.scale().wanted == 1 and fleet.scale().traffic.queued_slots == 1
    fleet.serve(QWEN)
    fleet.now += 1e5
    assert fleet.scale().wanted == 1 and fleet.scale().traffic.busy_slots == 1
    fleet.end_all()
    assert fleet.scale().wanted == 1
    fleet.now += OPTIONS.idle_s
    assert fleet.scale().wanted == 0


def test_after_a_start_nothing_is_taken_down_before_enough_was_seen() -> None:
    """Neither the arrivals nor the time of requests are known then."""
    fleet = Fleet(options=replace(OPTIONS, idle_s=1e6))
    fleet.serve(QWEN, servers=5)
    fleet.ask()
    fleet.end_all()
    assert fleet.scale().wanted == 5 and fleet.scale().cause is Cause.HELD
    fleet.now += OPTIONS.down_after_s - 1
    assert fleet.scale().wanted == 5
    fleet.now += 2 * OPTIONS.down_after_s
    assert fleet.scale().wanted == 1


def test_requests_for_unknown_names_count_for_the_only_model() -> None:
    """Such as `gpt-4`; with several models nobody knows which one they need."""
    fleet = Fleet()
    fleet.serve(QWEN)
    fleet.ask("gpt-4")
    fleet.ask(None)
    assert fleet.scale().traffic.busy_slots == 2 and fleet.scale().traffic.arrivals_per_s >= 0.0
    assert set(fleet.dispatcher.view.scale(fleet.now)) == {"qwen"}
    other = ModelReading(name="coder", is_loaded=True)
    fleet.dispatcher.set_loadable("test", {"coder": other}, fleet.now)
    for _ in range(4):
        fleet.ask("gpt-4")
    assert fleet.scale(model="").traffic.queued_slots == 2
    assert fleet.scale(model="coder").wanted == 0


def test_a_name_that_becomes_known_takes_its_queue_along() -> None:
    """Requests came before anybody said that their model can be scaled from zero."""
    fleet = Fleet()
    fleet.ask("chat")
    assert fleet.scale(model="").wanted == 1
    fleet.declare()
    assert fleet.scale().traffic.queued_slots == 1 and set(
        fleet.dispatcher.view.scale(fleet.now)
    ) == {"qwen"}


def test_bounds_and_slots_of_the_settings_count_by_any_name() -> None:
    bounds = ServerBounds(min_servers=1, max_servers=2, slots=4)
    fleet = Fleet(options=ScaleOptions(models={"chat": bounds}))
    fleet.declare()
    assert fleet.scale().wanted == 1 and fleet.scale().cause is Cause.BOUND
    assert fleet.scale().traffic.slots == 4
    fleet.serve(QWEN)
    fleet.ask()
    fleet.now += 60.0
    fleet.end_all()
    for _ in range(50):
        fleet.ask()
    assert fleet.scale().wanted == 2 and fleet.scale().cause is Cause.BOUND


@pytest.mark.parametrize(("queue_s", "servers"), [(None, 2), (0.1, 3)])
def test_an_objective_counts_alone_with_its_own_target(queue_s: float | None, servers: int) -> None:
    """Its `slo.queue_ms` is the time in the queue that is aimed at."""
    named = {
        "voice": Objective(name="voice", queue_s=queue_s),
        "batch": Objective(name="batch"),
    }
    fleet = Fleet(objectives=Objectives(by_name=named), service_s=30.0)
    fleet.serve(QWEN)
    for name in ("voice", "voice", "batch", "batch"):
        assert fleet.ask(objective=name)
    fleet.now += 30.0
    fleet.end_all()
    for _ in range(4):
        fleet.ask(objective="batch")
    for _ in range(8):
        fleet.ask(objective="voice")
    voice, batch = fleet.scale("voice"), fleet.scale("batch")
    assert (voice.traffic.queued_slots, voice.traffic.busy_slots) == (8, 0)
    assert (batch.traffic.queued_slots, batch.traffic.busy_slots) == (0, 4)
    assert voice.wanted == servers and batch.wanted == 2


def test_servers_that_are_away_or_of_an_unknown_objective_count_as_none() -> None:
    fleet = Fleet()
    fleet.serve(QWEN, servers=2)
    assert fleet.scale().traffic.servers == 2
    fleet.serve(QWEN, servers=0)
    fleet.declare()
    seen = fleet.scale().traffic
    assert seen.servers == 0 and seen.slots == 4, "what a server had is remembered"
    assert fleet.scale("nobody").traffic.arrivals_per_s == 0.0


def test_queued_requests_for_an_unknown_name_want_the_only_model() -> None:
    fleet = Fleet()
    fleet.serve(QWEN)
    for _ in range(10):
        fleet.ask("gpt-4")
    traffic = fleet.scale().traffic
    assert (traffic.queued_slots, traffic.busy_slots) == (6, 4)
    assert traffic.arrivals_per_s >= 0.0 and traffic.unasked_s == 0.0
    assert set(fleet.dispatcher.view.scale(fleet.now)) == {"qwen"}


def test_requests_for_a_name_that_only_a_program_scales_count_for_it() -> None:
    """The program starts its first server, so no server reports it; it may be an alias of one."""
    fleet = Fleet()
    fleet.serve(QWEN)
    for _ in range(10):
        fleet.ask("coder")
    found = fleet.dispatcher.view.scale(fleet.now, None, ("coder", "chat"))
    assert set(found) == {"qwen", "coder"}
    assert found["coder"].traffic.queued_slots == 6 and found["coder"].wanted >= 1


def test_a_server_that_has_not_loaded_a_model_does_not_serve_it() -> None:
    fleet = Fleet()
    fleet.serve(replace(QWEN, slots=4, busy_slots=0), ModelReading(name="coder", is_loaded=False))
    assert fleet.scale().traffic.servers == 1
    assert fleet.scale(model="coder").traffic.servers == 0
