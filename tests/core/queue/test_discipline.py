"""Claims about the order of service (extproc/core/queue/): priority, fairness, SLOs, weights."""

from __future__ import annotations

from random import Random

import pytest

from extproc.core.decision import Picked, Queued
from extproc.core.objective import NO_OBJECTIVE, Criticality, Objective
from extproc.core.observation import ModelReading
from extproc.core.queue.aging import Aging
from extproc.core.queue.fair_queueing import FairQueueing
from extproc.core.queue.ticket import Ticket
from extproc.core.rejection import Rejected
from extproc.core.request import Request
from extproc.core.slots.lease import Lease
from extproc.core.views.explain import explain
from tests.fakes.steered_fleet import SteeredFleet

GOLD = Objective(name="gold", criticality=Criticality.CRITICAL)
CHEAP = Objective(name="cheap", criticality=Criticality.SHEDDABLE)


def test_critical_before_standard_before_nothing() -> None:
    fleet = SteeredFleet(GOLD, CHEAP)
    fleet.add(1)
    lease = fleet.pick(objective="cheap")
    standard, critical = fleet.queue(), fleet.queue(objective="gold")
    assert fleet.rejection(objective="cheap") == "shed"
    fleet.finish(lease)
    assert fleet.is_waiting(standard) and not fleet.is_waiting(critical)


def test_a_critical_request_evicts_the_newest_of_the_lowest_criticality() -> None:
    fleet = SteeredFleet(GOLD, queue_max_requests=2)
    fleet.add(1)
    fleet.pick()
    older, newer = fleet.queue(), fleet.queue()
    assert fleet.rejection() == "queue-full"
    fleet.queue(objective="gold")
    settlement = fleet.listener.settlements[newer.id]
    assert isinstance(settlement, Rejected) and settlement.reason.value == "evicted"
    assert fleet.is_waiting(older)
    fleet.queue(objective="gold")
    assert not fleet.is_waiting(older)
    assert fleet.rejection(objective="gold") == "queue-full"


@pytest.mark.parametrize("lower", [CHEAP, Objective(name="usual")])
def test_the_glossarys_example(lower: Objective) -> None:
    """100 units of capacity, 40 critical and 40 others running, 30 units lost: under the same load,
    only non-critical requests are rejected."""
    fleet = SteeredFleet(GOLD, lower, queue_max_requests=5)
    for _ in range(10):
        fleet.add(10)
    random = Random(7)
    running: list[tuple[str, Lease]] = []
    waiting: dict[int, tuple[str, Ticket]] = {}
    rejected: list[str] = []

    def send(name: str) -> None:
        outcome = fleet.submit(objective=name)
        if isinstance(outcome, Rejected):
            rejected.append(name)
        elif isinstance(outcome, Queued):
            waiting[outcome.ticket.id] = (name, outcome.ticket)
        else:
            running.append((name, outcome.lease))

    def gather() -> None:
        for id_, (name, _) in list(waiting.items()):
            settlement = fleet.listener.settlements.get(id_)
            if settlement is not None:
                del waiting[id_]
                if isinstance(settlement, Rejected):
                    rejected.append(name)
                else:
                    running.append((name, settlement.lease))

    for name in ("gold", lower.name):
        for _ in range(40):
            send(name)
    assert not rejected
    for address in fleet.addresses[:3]:
        fleet.dispatcher.connect_failed(address, fleet.now)
        for name, lease in [one for one in running if one[1].address == address]:
            running.remove((name, lease))
            fleet.finish(lease)
            send(name)  # its client tries again
    for _ in range(2000):
        fleet.now += 0.01
        name, lease = running.pop(random.randrange(len(running)))
        fleet.finish(lease)
        send(name)
        gather()
    assert rejected and set(rejected) == {lower.name}


def test_the_objective_with_the_lowest_attainment_is_served_first() -> None:
    """98 % against 94 %: the second."""
    better = Objective(name="better", queue_s=1.0)
    worse = Objective(name="worse", queue_s=1.0)
    fleet = SteeredFleet(better, worse)
    fleet.add(1)
    slo_attainment = fleet.dispatcher.state.slo_attainment
    for name, met in (("better", 98), ("worse", 94)):
        for number in range(100):
            slo_attainment.record(name, number < met, fleet.now)
    lease = fleet.pick()
    first, second = fleet.queue(objective="better"), fleet.queue(objective="worse")
    fleet.finish(lease)
    assert fleet.is_waiting(first) and not fleet.is_waiting(second)


def test_a_tenant_with_a_thousand_does_not_delay_anothers_first() -> None:
    fleet = SteeredFleet(queue_max_requests=2000)
    fleet.add(2)
    leases = [fleet.pick(fairness_id="crowd") for _ in range(2)]
    for _ in range(1000):
        fleet.queue(fairness_id="crowd")
    fleet.now += 1.0
    other = fleet.queue(fairness_id="other")
    fleet.finish(leases[0])
    assert not fleet.is_waiting(other)


def test_use_is_counted_in_slot_seconds() -> None:
    """Of two tenants the one with long requests gets fewer of them, and as many seconds."""
    fleet = SteeredFleet(queue_max_requests=5000)
    fleet.add(1)
    for _ in range(100):  # it is known how long slots are held
        lease = fleet.pick(fairness_id="x")
        fleet.now += 0.02
        fleet.finish(lease)
    lease = fleet.pick(fairness_id="x")
    tickets = [
        (name, fleet.queue(fairness_id=name, timeout_s=1e6))
        for _ in range(300)
        for name in ("long", "short")
    ]
    used = {"long": 0.0, "short": 0.0}
    turns = dict.fromkeys(used, 0)
    waiting = {ticket.id: name for name, ticket in tickets}
    for _ in range(200):
        fleet.finish(lease)
        id_ = next(id_ for id_ in waiting if id_ in fleet.listener.settlements)
        name = waiting.pop(id_)
        settlement = fleet.listener.settlements[id_]
        assert not isinstance(settlement, Rejected)
        lease = settlement.lease
        seconds = 0.4 if name == "long" else 0.1  # short enough that nobody ages
        fleet.now += seconds / 10
        used[name] += seconds
        turns[name] += 1
    assert turns["short"] > 3 * turns["long"]
    assert 0.8 < used["long"] / used["short"] < 1.25


def test_absence_saves_nothing_up() -> None:
    """A flow that returns begins at the virtual time of its criticality."""
    fairness = FairQueueing()
    busy, away = fairness.flow(NO_OBJECTIVE, "busy"), fairness.flow(NO_OBJECTIVE, "away")
    fairness.contention_began()
    fairness.entered(busy)
    for _ in range(100):
        fairness.charge(busy, 1.0, has_waited=True)
        fairness.settle(busy, 1.0, 1.0)
    fairness.entered(away)
    assert away.tenant.virtual_s >= busy.tenant.virtual_s - 1.0


def test_a_preempted_ticket_gets_a_reservation_elsewhere() -> None:
    fleet = SteeredFleet(GOLD)
    here, there = fleet.add(4), fleet.add(4)
    leases = [fleet.pick() for _ in range(8)]
    older = fleet.queue(weight_slots=4, allowed=frozenset({here}))
    gold = fleet.queue(weight_slots=4, objective="gold")
    one, other, *_ = (lease for lease in leases if lease.address == here)
    fleet.finish(one)
    fleet.finish(next(lease for lease in leases if lease.address == there))
    all_slots = [fleet.dispatcher.ledger.endpoint_slots(address) for address in (here, there)]
    assert [endpoint_slots.reservation for endpoint_slots in all_slots] == [gold.reservation, None]
    all_slots[0].served_from_queue = Aging().every - 1
    fleet.now += 60.0
    fleet.finish(other)
    assert [endpoint_slots.reservation for endpoint_slots in all_slots] == [
        older.reservation,
        gold.reservation,
    ]


def test_a_reservation_that_cannot_be_met_is_not_exclusive() -> None:
    """It has aged and needs the whole server, of which a foreign request holds a slot: others
    bypass it."""
    fleet = SteeredFleet(GOLD)
    address = fleet.add(4)
    leases = [fleet.pick() for _ in range(4)]
    multi_slot = fleet.queue(weight_slots=4)
    fleet.now += 60.0
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(address)
    endpoint_slots.served_from_queue = Aging().every - 1
    fleet.finish(leases.pop())
    assert multi_slot.reservation is not None and multi_slot.reservation.is_exclusive
    assert endpoint_slots.reservation is multi_slot.reservation
    gold = fleet.queue(objective="gold")
    assert fleet.is_waiting(gold)
    fleet.finish(leases.pop())
    fleet.now += 1.0
    fleet.scrape(address, slots=4, busy_slots=3)
    assert not fleet.is_waiting(gold) and fleet.is_waiting(multi_slot)


def test_a_multi_slot_ticket_has_a_reservation_and_blocks_no_other() -> None:
    """One endpoint reserves slots for it; single-slot requests use the other meanwhile."""
    fleet = SteeredFleet()
    one, two = fleet.add(4), fleet.add(4)
    running = [fleet.pick() for _ in range(8)]
    multi_slot = fleet.queue(weight_slots=4)
    light = [fleet.queue() for _ in range(10)]
    first = running.pop(0)
    fleet.finish(first)
    assert multi_slot.reserved_at == first.address
    other = two if first.address == one else one
    for lease in [lease for lease in running if lease.address == other]:
        fleet.finish(lease)
    assert sum(not fleet.is_waiting(ticket) for ticket in light) == 4
    for lease in [lease for lease in running if lease.address == first.address]:
        fleet.finish(lease)
    assert fleet.served(multi_slot).address == first.address


def test_a_critical_arrival_bypasses_a_reservation_at_once() -> None:
    """It need not wait until something happens at the endpoint with the reservation; a standard one
    must, and each that bypasses counts as served from the queue."""
    fleet = SteeredFleet(GOLD)
    address = fleet.add(4)
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(address)
    fleet.pick()
    multi_slot = fleet.queue(weight_slots=4)
    fleet.queue()
    for _ in range(3):
        assert fleet.pick(objective="gold").address == address
    assert endpoint_slots.served_from_queue == 3
    fleet.queue(objective="gold")
    assert endpoint_slots.reservation is multi_slot.reservation is not None


def test_a_critical_arrival_overtakes_none_of_its_criticality() -> None:
    """One waits for two of three reserved slots: the next, which needs one, comes after it."""
    fleet = SteeredFleet(GOLD)
    address = fleet.add(3)
    fleet.pick(), fleet.pick()
    fleet.queue(weight_slots=3)
    first = fleet.queue(objective="gold", weight_slots=2)
    second = fleet.queue(objective="gold")
    fleet.scrape(address, slots=4, busy_slots=2)
    assert not fleet.is_waiting(first) and fleet.is_waiting(second)


@pytest.mark.parametrize(("waited_s", "passes"), [(4.9, True), (5.0, False)])
def test_no_arrival_bypasses_when_aging_decides(waited_s: float, passes: bool) -> None:
    """Otherwise critical requests that are never queued would starve a multi-slot request."""
    fleet = SteeredFleet(GOLD)
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(fleet.add(4))
    fleet.pick()
    fleet.queue(weight_slots=4)
    endpoint_slots.served_from_queue = Aging().every - 1
    fleet.now += waited_s
    assert isinstance(fleet.submit(objective="gold"), Picked) is passes


def test_reserved_slots_are_free_for_a_critical_request() -> None:
    fleet = SteeredFleet(GOLD)
    address = fleet.add(4)
    fleet.pick()
    fleet.queue(weight_slots=4)
    for objective, chosen in (("gold", address), (None, None)):
        request = Request(id="r", timeout_s=60.0, objective=objective)
        explanation = explain(fleet.dispatcher.view, request)
        assert explanation.chosen == chosen
        assert bool(explanation.candidates[0].filtered) is (chosen is None)


def test_slots_reserved_for_a_ticket_that_left_go_to_the_next() -> None:
    fleet = SteeredFleet()
    fleet.add(2)
    leases = [fleet.pick() for _ in range(2)]
    multi_slot = fleet.queue(weight_slots=2)
    light = fleet.queue()
    fleet.finish(leases[0])
    assert fleet.is_waiting(light)
    fleet.dispatcher.withdraw(multi_slot, fleet.now)
    assert not fleet.is_waiting(light)


def test_a_critical_arrival_finds_no_slot_in_the_reservation_of_another_model() -> None:
    """At the same router, where the slots of its own model are busy."""
    fleet = SteeredFleet(GOLD)
    models = [ModelReading(name="a", slots=2, busy_slots=0), ModelReading(name="b", slots=1)]
    fleet.add(3, models=models)
    fleet.pick(model="a"), fleet.pick(model="b")
    multi_slot = fleet.queue(model="a", weight_slots=2)
    assert multi_slot.reservation is not None
    waiting = fleet.queue(model="b", objective="gold")
    assert fleet.is_waiting(waiting) and fleet.is_waiting(multi_slot)
