"""Claims about whose turn it is: extproc/core/turns.py, lane.py, fairness.py, attainment.py."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.attainment import BUCKET_S, BUCKETS, Attainment
from extproc.core.fairness import Fairness
from extproc.core.lease import Lease
from extproc.core.objective import NO_OBJECTIVE, Criticality, Objective
from extproc.core.outcome import Queued, Rejected
from extproc.core.queue import Ticket
from extproc.core.turns import Aging
from tests.fakes.steered_fleet import SteeredFleet

GOLD = Objective(name="gold", criticality=Criticality.CRITICAL)
CHEAP = Objective(name="cheap", criticality=Criticality.SHEDDABLE)


def test_critical_before_standard_before_nothing() -> None:
    fleet = SteeredFleet(GOLD, CHEAP)
    fleet.add(1)
    lease = fleet.pick(objective="cheap")
    standard, critical = fleet.queue(), fleet.queue(objective="gold")
    assert fleet.refusal(objective="cheap") == "shed"
    fleet.finish(lease)
    assert fleet.is_waiting(standard) and not fleet.is_waiting(critical)


def test_a_critical_one_evicts_the_newest_of_the_lowest_class() -> None:
    fleet = SteeredFleet(GOLD, max_queued=2)
    fleet.add(1)
    fleet.pick()
    older, newer = fleet.queue(), fleet.queue()
    assert fleet.refusal() == "queue-full"
    fleet.queue(objective="gold")
    settlement = fleet.listener.settlements[newer.id]
    assert isinstance(settlement, Rejected) and settlement.reason.value == "evicted"
    assert fleet.is_waiting(older)
    fleet.queue(objective="gold")
    assert not fleet.is_waiting(older)
    assert fleet.refusal(objective="gold") == "queue-full"


@pytest.mark.parametrize("lower", [CHEAP, Objective(name="usual")])
def test_the_glossarys_example(lower: Objective) -> None:
    """100 units of capacity, 40 critical and 40 others running, 30 units lost: with the same
    load going on, all of the refused are non-critical."""
    fleet = SteeredFleet(GOLD, lower, max_queued=5)
    for _ in range(10):
        fleet.add(10)
    random = Random(7)
    running: list[tuple[str, Lease]] = []
    waiting: dict[int, tuple[str, Ticket]] = {}
    refused: list[str] = []

    def send(name: str) -> None:
        outcome = fleet.submit(objective=name)
        if isinstance(outcome, Rejected):
            refused.append(name)
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
                    refused.append(name)
                else:
                    running.append((name, settlement.lease))

    for name in ("gold", lower.name):
        for _ in range(40):
            send(name)
    assert not refused
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
    assert refused and set(refused) == {lower.name}


def test_the_promise_that_fared_worst_is_served_first() -> None:
    """98 % against 94 %: the second."""
    better = Objective(name="better", queue_s=1.0)
    worse = Objective(name="worse", queue_s=1.0)
    fleet = SteeredFleet(better, worse)
    fleet.add(1)
    promises = fleet.dispatcher.state.promises
    for name, met in (("better", 98), ("worse", 94)):
        for number in range(100):
            promises.judged(name, number < met, fleet.now)
    lease = fleet.pick()
    first, second = fleet.queue(objective="better"), fleet.queue(objective="worse")
    fleet.finish(lease)
    assert fleet.is_waiting(first) and not fleet.is_waiting(second)


def test_shares_are_those_of_five_minutes() -> None:
    attainment = Attainment()
    assert attainment.share(0.0) == 1.0
    attainment.judged(was_met=False, now=1000.0)
    attainment.judged(was_met=True, now=1100.0)
    assert attainment.share(1100.0) == 0.5
    assert attainment.share(1000.0 + BUCKETS * BUCKET_S) == 1.0
    assert attainment.share(1e9) == 1.0


def test_a_tenant_with_a_thousand_does_not_hold_up_anothers_first() -> None:
    fleet = SteeredFleet(max_queued=2000)
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
    fleet = SteeredFleet(max_queued=5000)
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
    """A flow that comes back begins where its class is."""
    fairness = Fairness()
    busy, away = fairness.flow(NO_OBJECTIVE, "busy"), fairness.flow(NO_OBJECTIVE, "away")
    fairness.contention_began()
    fairness.entered(busy)
    for _ in range(100):
        fairness.charge(busy, 1.0, has_waited=True)
        fairness.settle(busy, 1.0, 1.0)
    fairness.entered(away)
    assert away.virtual_s >= busy.virtual_s - 1.0


@given(seed=st.integers(0, 2**32), slots=st.lists(st.integers(1, 3), min_size=1, max_size=3))
@settings(max_examples=30, deadline=None)
def test_no_class_starves(seed: int, slots: list[int]) -> None:
    """Critical requests without end: a standard ticket that `after_s` has passed goes when an
    endpoint has served `every` times as many from the line as came before it, and its own."""
    aging = Aging()
    fleet = SteeredFleet(GOLD, max_queued=500)
    for count in slots:
        fleet.add(count)
    random = Random(seed)
    running = [fleet.pick(objective="gold") for _ in range(sum(slots))]
    known: dict[int, Ticket] = {}

    def flood() -> None:
        while len(fleet.dispatcher.line) < 20:
            ticket = fleet.queue(objective="gold", timeout_s=1e9)
            known[ticket.id] = ticket

    flood()
    older = len(fleet.dispatcher.line)
    poor = fleet.queue(timeout_s=1e9)
    fleet.now += aging.after_s
    accounts = [fleet.dispatcher.ledger.account(address) for address in fleet.addresses]
    before = [account.served_from_line for account in accounts]
    while fleet.is_waiting(poor):
        served = min(a.served_from_line - b for a, b in zip(accounts, before, strict=True))
        assert served <= aging.every * (older + 1), "it starved"
        fleet.now += random.random()
        fleet.finish(running.pop(random.randrange(len(running))))
        settled = [id_ for id_ in known if id_ in fleet.listener.settlements]
        running += [fleet.served(known.pop(id_)) for id_ in settled]
        flood()


def test_a_heavy_ticket_has_slots_kept_and_blocks_nobody() -> None:
    """One endpoint saves up for it; the light ones go to the other meanwhile."""
    fleet = SteeredFleet()
    one, two = fleet.add(4), fleet.add(4)
    running = [fleet.pick() for _ in range(8)]
    heavy = fleet.queue(weight_slots=4)
    light = [fleet.queue() for _ in range(10)]
    first = running.pop(0)
    fleet.finish(first)
    assert heavy.kept_at == first.address
    other = two if first.address == one else one
    for lease in [lease for lease in running if lease.address == other]:
        fleet.finish(lease)
    assert sum(not fleet.is_waiting(ticket) for ticket in light) == 4
    for lease in [lease for lease in running if lease.address == first.address]:
        fleet.finish(lease)
    assert fleet.served(heavy).address == first.address


def test_slots_kept_for_one_that_left_go_to_the_next() -> None:
    fleet = SteeredFleet()
    fleet.add(2)
    leases = [fleet.pick() for _ in range(2)]
    heavy = fleet.queue(weight_slots=2)
    light = fleet.queue()
    fleet.finish(leases[0])
    assert fleet.is_waiting(light)
    fleet.dispatcher.withdraw(heavy, fleet.now)
    assert not fleet.is_waiting(light)
