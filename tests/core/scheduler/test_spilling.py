"""Claims about extproc/core/scheduler/spilling.py: what may not leave never does."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from extproc.core.address import Address
from extproc.core.bounds import BoundKind, BoundLimits, BoundOptions
from extproc.core.constraints import UNCONSTRAINED, Constraints
from extproc.core.decision import Decision, Picked, Queued
from extproc.core.fleet.endpoint import EndpointSpec, Intent
from extproc.core.objective import Criticality, Objective
from extproc.core.observation import ScrapeStatus
from extproc.core.outliers.failure_evidence import Fault
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request
from extproc.core.scheduler.spilling import CHECK_S
from extproc.core.scheduler.takeover import HeldLease, Place
from extproc.core.slots.lease import Lease, LeaseEnd
from extproc.core.spill import SpillOptions
from extproc.core.views.explain import explain
from tests.fakes.steered_fleet import SteeredFleet

GO = Objective(name="go")
FAST = Objective(name="fast", queue_s=4.0)
STAY = Objective(name="stay")
CHEAP = Objective(name="cheap", criticality=Criticality.SHEDDABLE)
CRITICAL = Objective(name="critical", criticality=Criticality.CRITICAL)
MAY_GO = frozenset({"go", "fast", "cheap"})
FAR = Address("10.9.0.1", 443)
FAR_TOO = Address("10.9.0.2", 443)
FAR_SLOTS = 6


def spilling(*slots: int, queue: int = 100, **options: Any) -> SteeredFleet:
    """A fleet with these slots at home, and requests of `go`, `fast` and `cheap` that may spill."""
    fleet = SteeredFleet(GO, FAST, STAY, CHEAP, CRITICAL, queue_max_requests=queue)
    for count in slots:
        fleet.add(count)
    permit(fleet, **options)
    return fleet


def permit(fleet: SteeredFleet, **options: Any) -> None:
    spill = SpillOptions(**{"objectives": MAY_GO, "after_wait_s": 10.0, **options})
    fleet.dispatcher.renew(replace(fleet.dispatcher.options, spill=spill), fleet.now)


def far(fleet: SteeredFleet, slots: int = 4, address: Address = FAR, **told: Any) -> None:
    """A provider of tier 2 joins, and has shown itself."""
    names = told.pop("names", {})
    spec = EndpointSpec(address=address, tier=2, far_models=tuple(names.items()))
    known = fleet.dispatcher.fleet.specs_of("far")
    fleet.dispatcher.set_members("far", [*known.values(), spec], fleet.now)
    fleet.scrape(address, slots=slots, **told)


def learn(fleet: SteeredFleet, seconds: float = 20.0, requests: int = 8) -> None:
    """Let the fleet learn how long a slot is used: requests at home, one after the other."""
    for _ in range(requests):
        lease = fleet.pick(objective="stay")
        assert lease.address != FAR
        fleet.now += seconds
        fleet.finish(lease)


def placed(fleet: SteeredFleet, outcome: Decision) -> Address | None:
    """Where a request runs; None while it is queued."""
    if isinstance(outcome, Queued):
        found = fleet.listener.settlements.get(outcome.ticket.id)
        return found.lease.address if isinstance(found, Picked) else None
    assert isinstance(outcome, Picked), outcome
    return outcome.lease.address


def test_the_first_tier_comes_first() -> None:
    """The far endpoint gets nothing while a slot is free at home, however idle it is."""
    fleet = spilling(1)
    far(fleet, 100)
    for _ in range(5):
        lease = fleet.pick(objective="go")
        assert lease.address == fleet.addresses[0]
        fleet.finish(lease)


def test_a_request_spills_if_its_expected_wait_is_too_long() -> None:
    """Others wait: those that may not leave, and those that are served in time."""
    fleet = spilling(2)
    far(fleet)
    learn(fleet, 15.0)
    for _ in range(2):
        fleet.pick(objective="stay")
    fleet.now += 10.0
    outcomes = [fleet.submit(objective="stay")]
    in_time = fleet.submit(objective="go")  # two slots are free in 5 s, and this is the second
    late = fleet.submit(objective="go")
    assert placed(fleet, late) == FAR
    assert placed(fleet, in_time) is None
    assert placed(fleet, outcomes[0]) is None
    assert isinstance(late, Picked)
    assert (late.fallbacks, late.is_restricted) == ((), True)
    assert fleet.dispatcher.state.spilled == 1
    assert fleet.dispatcher.faults(fleet.now) == []


def test_a_wait_that_reaches_its_bound_spills_whatever_was_expected() -> None:
    """Nothing was learned yet, so nobody knows the wait: it spills just before its bound."""
    fleet = spilling(1, after_wait_s=10.0)
    far(fleet)
    fleet.pick(objective="stay")
    stays = [fleet.queue(objective="stay") for _ in range(3)]
    goes = fleet.queue(objective="go")
    for _ in range(38):
        fleet.pass_time(0.25)
        assert goes.is_waiting
    fleet.pass_time(0.25)
    assert fleet.served(goes).address == FAR
    assert fleet.now - goes.entered_at <= 10.0
    fleet.pass_time(60.0)
    assert all(ticket.is_waiting for ticket in stays)
    assert fleet.dispatcher.faults(fleet.now) == []


def test_the_bound_may_be_a_share_of_the_slo_or_its_deadline() -> None:
    fleet = spilling(1, after_wait_s=50.0, slo_share=0.5)
    far(fleet)
    fleet.pick(objective="stay")
    fast = fleet.queue(objective="fast")
    impatient = fleet.queue(objective="go", timeout_s=5.0)
    patient = fleet.queue(objective="go")
    for _ in range(8):
        fleet.pass_time(0.25)
    assert fleet.served(fast).address == FAR and impatient.is_waiting
    for _ in range(12):
        fleet.pass_time(0.25)
    assert fleet.served(impatient).address == FAR and patient.is_waiting


def test_it_spills_at_once_if_nobody_at_home_can_serve_it() -> None:
    """All are down, drained or gone; but one that is loading is waited for."""
    fleet = spilling(1)
    far(fleet)
    home = fleet.addresses[0]
    fleet.dispatcher.set_intent(home, Intent.DRAINING, fleet.now)
    assert placed(fleet, fleet.submit(objective="go")) == FAR
    assert placed(fleet, fleet.submit(objective="stay")) is None
    fleet.dispatcher.set_intent(home, Intent.ACTIVE, fleet.now)
    fleet.now += 1.0
    fleet.scrape(home, status=ScrapeStatus.LOADING)
    assert placed(fleet, fleet.submit(objective="go")) is None
    fleet.now += 1.0
    fleet.scrape(home, status=ScrapeStatus.UNREACHABLE)
    assert placed(fleet, fleet.submit(objective="go")) == FAR


def test_what_may_not_wait_spills_instead_of_a_rejection() -> None:
    """A sheddable request, one without patience, one that finds the queue full, and one that a
    critical request evicts."""
    fleet = spilling(1, queue=2)
    far(fleet, 10)
    fleet.pick(objective="stay")
    assert placed(fleet, fleet.submit(objective="cheap")) == FAR
    assert placed(fleet, fleet.submit(objective="go", timeout_s=0.0)) == FAR
    assert fleet.rejection(objective="stay", timeout_s=0.0) == "queue-timeout"
    fleet.queue(objective="stay")
    goes = fleet.queue(objective="go")
    assert placed(fleet, fleet.submit(objective="go")) == FAR
    assert fleet.rejection(objective="stay") == "queue-full"
    fleet.queue(objective="critical")
    assert fleet.served(goes).address == FAR
    assert fleet.dispatcher.faults(fleet.now) == []


def test_no_more_at_once_than_max_requests_and_slots() -> None:
    fleet = spilling(max_running=3)
    far(fleet, 2)
    far(fleet, 2, FAR_TOO)
    found = [placed(fleet, fleet.submit(objective="go")) for _ in range(5)]
    assert sorted(map(str, found[:3])) == [str(FAR), str(FAR), str(FAR_TOO)] or sorted(
        map(str, found[:3])
    ) == [str(FAR), str(FAR_TOO), str(FAR_TOO)]
    assert found[3:] == [None, None]
    permit(fleet, max_running=9)
    fleet.pass_time(0.25)
    assert len(fleet.dispatcher.queue) == 1
    assert fleet.dispatcher.state.spilled == 4


def test_the_next_one_spills_when_a_far_slot_is_free() -> None:
    fleet = spilling()
    far(fleet, 1)
    first = fleet.pick(objective="go")
    second = fleet.queue(objective="go")
    fleet.pass_time(1.0)
    assert second.is_waiting
    fleet.finish(first)
    fleet.pass_time(0.25)
    assert fleet.served(second).address == FAR


def test_a_closed_tier_gets_nothing_more() -> None:
    fleet = spilling()
    far(fleet)
    fleet.dispatcher.limit_spill(0, "a day's cost is used up")
    waiting = fleet.queue(objective="go")
    fleet.pass_time(30.0)
    assert waiting.is_waiting
    fleet.dispatcher.limit_spill(2)
    fleet.pass_time(0.25)
    assert fleet.served(waiting).address == FAR
    found = [placed(fleet, fleet.submit(objective="go")) for _ in range(2)]
    assert found == [FAR, None], "two were left"


@pytest.mark.parametrize(
    ("names", "asked", "there"),
    [
        ({}, {}, (True, None)),
        ({"tiny": "gpt"}, {"model": "tiny"}, (True, "gpt")),
        ({"tiny": "gpt"}, {"model": "other"}, (False, None)),
        ({"tiny": "gpt"}, {}, (False, None)),
        ({"*": "gpt"}, {"model": "other"}, (True, "gpt")),
        ({"*": "gpt"}, {}, (False, None)),
        ({"*": "gpt", "tiny": "small"}, {"model": "tiny"}, (True, "small")),
        ({"tiny": "gpt"}, {"model": "tiny", "is_verbatim": True}, (False, None)),
        ({"tiny": "tiny"}, {"model": "tiny", "is_verbatim": True}, (True, "tiny")),
        ({"tiny": "gpt"}, {"model": "tiny", "adapter": "lora"}, (False, None)),
    ],
)
def test_names_of_models_are_mapped(
    names: dict[str, str], asked: dict[str, Any], there: tuple[bool, str | None]
) -> None:
    """An endpoint with a map gets only what is in it, and only if the name can be written."""
    fleet = spilling()
    far(fleet, names=names)
    outcome = fleet.submit(objective="go", **asked)
    assert (isinstance(outcome, Picked), getattr(outcome, "model", None)) == there


def test_without_a_map_the_far_server_must_have_the_model() -> None:
    fleet = spilling()
    home = fleet.add(1, models=["tiny"])
    far(fleet, models=["gpt"])
    far(fleet, 1, FAR_TOO, models=["tiny"])
    fleet.pick(objective="stay", model="tiny")
    fleet.dispatcher.set_intent(home, Intent.DRAINING, fleet.now)
    assert placed(fleet, fleet.submit(objective="go", model="tiny")) == FAR_TOO
    assert placed(fleet, fleet.submit(objective="go", model="tiny")) is None


def test_far_models_are_not_the_fleets() -> None:
    """A provider lists hundreds of models: none of them is a model of the fleet."""
    fleet = spilling(1)
    far(fleet, models=["gpt", "gpt-large"], context_tokens=100_000)
    names = fleet.dispatcher.resolver.names
    assert not names.models.is_known("gpt") and not names.catalog.has_several_models
    assert fleet.dispatcher.state.contexts.least == 0


def test_an_endpoint_that_becomes_far_is_forgotten_at_home() -> None:
    fleet = spilling()
    home = fleet.add(1, models=["tiny"])
    waiting = fleet.submit(objective="stay", model="tiny")
    assert placed(fleet, waiting) == home
    fleet.dispatcher.set_members("test", [EndpointSpec(address=home, tier=2)], fleet.now)
    assert not fleet.dispatcher.resolver.names.models.is_known("tiny")
    assert fleet.dispatcher.passing() == []
    queued = fleet.queue(objective="stay", model="tiny")
    assert isinstance(waiting, Picked)
    fleet.finish(waiting.lease)
    fleet.scrape(home, slots=1, busy_slots=0, models=["tiny"])
    assert queued.is_waiting


def test_any_source_that_says_far_is_believed() -> None:
    """DNS or an agent names the same address without a tier: it stays far, in either order."""
    for sources in (("far", "dns"), ("dns", "far")):
        fleet = spilling()
        for source in sources:
            tier = 2 if source == "far" else 1
            spec = EndpointSpec(address=FAR, tier=tier, tls_profile="" if tier == 2 else "ca")
            fleet.dispatcher.set_members(source, [spec], fleet.now)
        endpoint = fleet.dispatcher.fleet.get(FAR)
        assert endpoint is not None
        assert (endpoint.spec.tier, endpoint.spec.tls_profile) == (2, "ca")


def test_envoy_may_not_choose_a_far_endpoint_by_itself() -> None:
    """The others stay open to it: requests that no picker has decided find them."""
    fleet = spilling(1)
    far(fleet)
    members = fleet.dispatcher.fleet.membership().members
    assert {member.address: member.requires_pick for member in members} == {
        fleet.addresses[0]: False,
        FAR: True,
    }


def test_a_bound_holds_for_requests_that_spill() -> None:
    fleet = spilling()
    far(fleet, 10)
    limits = {(BoundKind.OBJECTIVE, "go"): BoundLimits(running=2)}
    fleet.dispatcher.renew(
        replace(fleet.dispatcher.options, bounds=BoundOptions(limits=limits)), fleet.now
    )
    leases = [fleet.pick(objective="go") for _ in range(2)]
    third = fleet.queue(objective="go")
    fleet.pass_time(20.0)
    assert third.is_waiting
    fleet.finish(leases[0])
    fleet.pass_time(0.25)
    assert fleet.served(third).address == FAR
    assert fleet.dispatcher.faults(fleet.now) == []


def test_an_explanation_says_whether_a_request_may_leave() -> None:
    fleet = spilling(1)
    asked = {name: Request(id="r", timeout_s=9.0, objective=name) for name in ("go", "stay")}
    found = {name: explain(fleet.dispatcher.view, one, fleet.now) for name, one in asked.items()}
    assert "may_spill" not in found["go"].resolved, "there is no tier 2"
    far(fleet)
    found = {name: explain(fleet.dispatcher.view, one, fleet.now) for name, one in asked.items()}
    assert [found[name].resolved["may_spill"] for name in ("go", "stay")] == ["yes", "no"]
    assert found["go"].chosen == fleet.addresses[0]
    (there,) = [one for one in found["go"].candidates if one.address == FAR]
    assert there.filtered == ("it is of tier 2: only a spill sends requests there",)


def test_requests_without_a_slot_never_leave() -> None:
    """Counts of tokens, lists of models: no endpoint is better than a far one."""
    fleet = spilling()
    far(fleet, models=["tiny"])
    for constraints in (
        UNCONSTRAINED,
        Constraints(model="tiny"),
        Constraints(allowed=frozenset({FAR})),
        Constraints(by_rules=frozenset({FAR})),
        Constraints(api="ollama"),
    ):
        assert fleet.dispatcher.passing(constraints) == []
    assert fleet.rejection(objective="stay", allowed=frozenset({FAR})) == "no-endpoint"


def test_a_lease_elsewhere_is_continued_there_and_nowhere_else() -> None:
    """A picker that restarts adopts a spilled request; it sends nothing, and counts it."""
    fleet = spilling(max_running=1)
    far(fleet)
    held = HeldLease(
        address=FAR, weight_slots=1, asked_slots=1, model=None, opened_at=90.0, waited_s=1.0
    )
    adopted = fleet.dispatcher.adopt(
        held, Request(id="old", timeout_s=9.0, objective="go"), fleet.now
    )
    assert adopted is not None and adopted.lease.address == FAR
    waiting = fleet.queue(objective="go")
    fleet.dispatcher.release(adopted.lease, LeaseEnd.SERVED, fleet.now)
    fleet.pass_time(0.25)
    assert fleet.served(waiting).address == FAR


def test_nothing_spills_while_a_takeover_gathers_what_was_there() -> None:
    fleet = spilling()
    far(fleet)
    fleet.dispatcher.hold()
    waiting = fleet.queue(objective="go")
    shed = fleet.rejection(objective="cheap")
    fleet.pass_time(1.0)
    assert waiting.is_waiting and shed == "no-endpoint"
    fleet.dispatcher.assign(fleet.now)
    fleet.pass_time(0.25)
    assert fleet.served(waiting).address == FAR


@pytest.mark.parametrize("seed", range(12))
def test_what_may_not_leave_never_leaves(seed: int) -> None:
    """Whatever happens at home and far away: only permitted requests get a far lease, no lease at
    home has a far fallback, and the ledger is exact."""
    RandomSpills(Random(seed)).run(600)


class RandomSpills:
    """Random requests, ends, deaths, drains, reloads and takeovers over home and two providers."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fleet = spilling(1, 2, 2, queue=12)
        far(self.fleet, 2, names={"tiny": "gpt", "*": "any"})
        far(self.fleet, 2, FAR_TOO)
        self.permitted = MAY_GO
        self.may_go: dict[str, bool] = {}
        self.open: list[Picked] = []
        self.tickets: dict[int, str] = {}
        self.count = self.left = self.at_home = 0

    def run(self, steps: int) -> None:
        events = [self.arrive] * 8 + [self.end] * 6 + [self.home_changes, self.reload, self.fall]
        events += [self.pass_time] * 3 + [self.withdraw, self.pause, self.take_over, self.drain]
        for _ in range(steps):
            self.random.choice(events)()
            self.collect()
            assert self.fleet.dispatcher.faults(self.fleet.now) == []
        assert self.left > 5 and self.at_home > 5

    def arrive(self) -> None:
        objective = self.random.choice(["go", "fast", "cheap", "stay", "critical", ""])
        self.count += 1
        id_ = f"r{self.count}"
        self.may_go[id_] = objective in self.permitted
        outcome = self.fleet.submit(
            id=id_,
            objective=objective or None,
            timeout_s=self.random.choice([0.0, 3.0, 30.0]),
            model=self.random.choice([None, "tiny", "other"]),
            weight_slots=self.random.choice([1, 1, 2]),
            session_id=self.random.choice([None, "s"]),
            prompt_blocks=self.random.choice([(), (1, 2)]),
            prompt_tokens=self.random.choice([None, 100]),
            allowed=self.random.choice([None, None, frozenset({FAR, self.fleet.addresses[0]})]),
        )
        if isinstance(outcome, Queued):
            self.tickets[outcome.ticket.id] = id_
        elif isinstance(outcome, Picked):
            self.check(id_, outcome)

    def check(self, id_: str, picked: Picked) -> None:
        is_far = picked.lease.address in (FAR, FAR_TOO)
        assert self.may_go[id_] or not is_far
        assert not set(picked.fallbacks) & {FAR, FAR_TOO}
        if is_far:
            assert picked.is_restricted and not picked.fallbacks
        self.left += is_far
        self.at_home += not is_far
        self.open.append(picked)

    def collect(self) -> None:
        for id_ in [one for one in self.tickets if one in self.fleet.listener.settlements]:
            settlement = self.fleet.listener.settlements[id_]
            request = self.tickets.pop(id_)
            if isinstance(settlement, Picked):
                self.check(request, settlement)
        for constraints in (UNCONSTRAINED, Constraints(model="tiny")):
            assert not set(self.fleet.dispatcher.passing(constraints)) & {FAR, FAR_TOO}
        far_leases = sum(one.lease.address in (FAR, FAR_TOO) for one in self.open)
        assert far_leases <= 8

    def end(self) -> None:
        if self.open:
            picked = self.open.pop(self.random.randrange(len(self.open)))
            end = self.random.choice([LeaseEnd.SERVED, LeaseEnd.SERVED, LeaseEnd.ABANDONED])
            self.fleet.dispatcher.release(picked.lease, end, self.fleet.now)

    def fall(self) -> None:
        if self.open:
            lease = self.random.choice(self.open).lease
            if lease.closed_at is None:
                self.fleet.dispatcher.failed(lease, Fault.BROKEN_ANSWER, self.fleet.now)

    def pause(self) -> None:
        if self.open:
            self.fleet.dispatcher.paused(self.random.choice(self.open).lease, 2.0, self.fleet.now)

    def home_changes(self) -> None:
        address = self.random.choice([*self.fleet.addresses, FAR, FAR_TOO])
        self.fleet.now += 0.01
        status = self.random.choice([ScrapeStatus.READY, ScrapeStatus.READY, *ScrapeStatus])
        busy = None if address in (FAR, FAR_TOO) else self.random.choice([0, 1])
        models = self.random.choice([(), ("tiny",), ("tiny", "other")])
        self.fleet.scrape(address, status=status, slots=2, busy_slots=busy, models=models)

    def drain(self) -> None:
        address = self.random.choice([*self.fleet.addresses, FAR])
        intent = self.random.choice([Intent.ACTIVE, Intent.ACTIVE, Intent.DRAINING])
        self.fleet.dispatcher.set_intent(address, intent, self.fleet.now)

    def reload(self) -> None:
        self.permitted = self.random.choice([MAY_GO, MAY_GO, frozenset({"go"}), frozenset()])
        permit(self.fleet, objectives=self.permitted, after_wait_s=self.random.choice([0.5, 5.0]))
        # What was queued may leave by what applies when it would.
        for ticket in self.fleet.dispatcher.queue:
            self.may_go[ticket.request.id] = ticket.objective.name in self.permitted

    def pass_time(self) -> None:
        self.fleet.pass_time(self.random.choice([0.1, 0.5, 4.0]))

    def withdraw(self) -> None:
        for ticket in list(self.fleet.dispatcher.queue)[:1]:
            self.fleet.dispatcher.withdraw(ticket, self.fleet.now)
            self.tickets.pop(ticket.id, None)

    def take_over(self) -> None:
        """The queue is rebuilt as by another process: each ticket at its old place."""
        dispatcher = self.fleet.dispatcher
        dispatcher.hold()
        for ticket in list(dispatcher.queue):
            id_ = self.tickets.pop(ticket.id, "")
            place = Place(ticket_id=ticket.id, entered_at=ticket.entered_at)
            dispatcher.withdraw(ticket, self.fleet.now)
            outcome = dispatcher.place(ticket.request, place, self.fleet.now)
            if isinstance(outcome, Queued):
                self.tickets[outcome.ticket.id] = id_
            elif isinstance(outcome, Picked):
                self.check(id_, outcome)
        dispatcher.assign(self.fleet.now)


@pytest.mark.parametrize("seed", range(8))
def test_over_a_burst_no_wait_passes_the_bound_while_the_tier_has_room(seed: int) -> None:
    """A minute of three times what home can serve, answers of random lengths: what may leave waits
    no longer than the bound while a far slot is free, what may not waits as long as it takes, and
    nothing spills before the burst, nor when its rest is served."""
    Burst(Random(seed)).run()


class Burst:
    """Four slots at home, six far away, and arrivals of `go` and `stay` every so often."""

    BOUND_S = 10.0

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fleet = spilling(2, 2, after_wait_s=self.BOUND_S, max_running=FAR_SLOTS)
        far(self.fleet, FAR_SLOTS)
        learn(self.fleet, 4.0)
        self.ends: list[tuple[float, Lease]] = []
        self.waiting: dict[int, Ticket] = {}
        self.far_leases = 0

    def run(self) -> None:
        assert self.spilled_in(60.0, pace=0.4) == 0
        assert self.spilled_in(60.0, pace=3.0) > 30
        self.spilled_in(240.0, pace=0.2)  # what the burst left
        assert self.spilled_in(60.0, pace=0.2) == 0
        assert not self.far_leases
        assert self.fleet.dispatcher.faults(self.fleet.now) == []

    def spilled_in(self, seconds: float, *, pace: float) -> int:
        """How many requests spill in a time with so many arrivals a second."""
        before, until = self.fleet.dispatcher.state.spilled, self.fleet.now + seconds
        while self.fleet.now < until:
            if self.random.random() < pace * CHECK_S:
                self.arrive()
            self.step()
        return self.fleet.dispatcher.state.spilled - before

    def arrive(self) -> None:
        objective = self.random.choice(["go", "go", "stay"])
        outcome = self.fleet.submit(objective=objective)
        if isinstance(outcome, Queued):
            self.waiting[outcome.ticket.id] = outcome.ticket
        else:
            assert isinstance(outcome, Picked)
            self.began(objective, outcome)

    def began(self, objective: str, picked: Picked) -> None:
        is_far = picked.lease.address == FAR
        assert objective == "go" or not is_far
        self.far_leases += is_far
        self.ends.append((self.fleet.now + self.random.uniform(1.0, 7.0), picked.lease))

    def step(self) -> None:
        """A quarter of a second."""
        self.fleet.pass_time(CHECK_S)
        self.collect()
        late = [one for one in self.waiting.values() if self.is_late(one)]
        assert not late or self.far_leases == FAR_SLOTS, "it waits too long, and there is room"
        due = [lease for at, lease in self.ends if at <= self.fleet.now]
        self.ends = [one for one in self.ends if one[0] > self.fleet.now]
        for lease in due:
            self.far_leases -= lease.address == FAR
            self.fleet.finish(lease)
        self.collect()

    def collect(self) -> None:
        """The requests that have left the queue."""
        for id_, ticket in list(self.waiting.items()):
            settlement = self.fleet.listener.settlements.get(id_)
            if settlement is not None:
                assert isinstance(settlement, Picked)
                del self.waiting[id_]
                self.began(ticket.objective.name, settlement)

    def is_late(self, ticket: Ticket) -> bool:
        waited_s = self.fleet.now - ticket.entered_at
        return ticket.objective.name == "go" and waited_s > self.BOUND_S
