"""Claims about extproc/core/queue/aging.py: no criticality starves."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.decision import Picked, Queued
from extproc.core.objective import Criticality, Objective
from extproc.core.queue.aging import Aging
from extproc.core.queue.ticket import Ticket
from tests.fakes.steered_fleet import SteeredFleet

GOLD = Objective(name="gold", criticality=Criticality.CRITICAL)


@given(
    seed=st.integers(0, 2**32),
    slots=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    older=st.integers(0, 3),
    multi_slot=st.lists(st.booleans(), min_size=1, max_size=4),
    freed=st.integers(0, 4),
    most_slots=st.integers(1, 3),
)
@settings(max_examples=100, deadline=None)
def test_no_criticality_starves(
    seed: int, slots: list[int], older: int, multi_slot: list[bool], freed: int, most_slots: int
) -> None:
    """Critical requests without end: standard tickets that have waited `after_s`, single-slot ones
    and such as take a whole server, are each served when an endpoint has served `every` times as
    many queued tickets as arrived before them, themselves included."""
    aging = Aging()
    fleet = SteeredFleet(GOLD, queue_max_requests=500)
    for count in slots:
        fleet.add(count)
    random = Random(seed)
    running = [fleet.pick() for _ in range(sum(slots))]
    known: dict[int, Ticket] = {}

    def flood(waiting: int) -> None:
        while len(fleet.dispatcher.queue) < waiting:
            weight_slots = random.randint(1, most_slots)
            outcome = fleet.submit(objective="gold", timeout_s=1e9, weight_slots=weight_slots)
            if isinstance(outcome, Queued):
                known[outcome.ticket.id] = outcome.ticket
            else:
                assert isinstance(outcome, Picked)
                running.append(outcome.lease)

    def finish_one() -> None:
        fleet.finish(running.pop(random.randrange(len(running))))
        settled = [id_ for id_ in known if id_ in fleet.listener.settlements]
        running.extend(fleet.served(known.pop(id_)) for id_ in settled)

    flood(older)
    all_endpoints = frozenset(fleet.addresses)  # named: another constraint queue that is eligible
    poor = [
        fleet.queue(
            timeout_s=1e9,
            weight_slots=4 if is_heavy else 1,
            allowed=random.choice((None, all_endpoints)),
        )
        for is_heavy in multi_slot
    ]
    known |= {ticket.id: ticket for ticket in poor}
    for _ in range(freed):  # a multi-slot ticket may get a reservation before the flood
        if len(running) > 1:
            finish_one()
    flood(20)
    fleet.now += aging.after_s
    before_all = [ticket for ticket in known.values() if ticket.id < poor[0].id]
    all_slots = [fleet.dispatcher.ledger.endpoint_slots(address) for address in fleet.addresses]
    before = [endpoint_slots.served_from_queue for endpoint_slots in all_slots]
    while waiting := [ticket for ticket in poor if fleet.is_waiting(ticket)]:
        served = min(a.served_from_queue - b for a, b in zip(all_slots, before, strict=True))
        number = len(before_all) + poor.index(waiting[0]) + 1
        assert served <= aging.every * number, "it starved"
        fleet.now += random.random()
        finish_one()
        flood(20)


@pytest.mark.parametrize(("waited_s", "is_served"), [(4.9, False), (5.0, True)])
def test_aging_begins_after_five_seconds(waited_s: float, is_served: bool) -> None:
    """In a short queue the request of higher criticality is served first, every time."""
    fleet = SteeredFleet(GOLD)
    endpoint_slots = fleet.dispatcher.ledger.endpoint_slots(fleet.add(1))
    lease = fleet.pick()
    poor = fleet.queue()
    fleet.queue(objective="gold")
    endpoint_slots.served_from_queue = Aging().every - 1
    fleet.now += waited_s
    fleet.finish(lease)
    assert fleet.is_waiting(poor) is not is_served
