"""Claims about the order `started_first`: a started agent finishes before a new one starts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.objective import Criticality, Objective
from extproc.core.queue.aging import Aging
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.queue.ticket import Ticket
from extproc.core.request import Request
from extproc.core.slots.lease import Lease
from extproc.core.views.explain import explain
from tests.fakes.steered_fleet import SteeredFleet

BOUND_S = 60.0
ORDER = QueueOrder(discipline=Discipline.STARTED_FIRST, max_overtaken_s=BOUND_S)
GOLD = Objective(name="gold", criticality=Criticality.CRITICAL)
PROMPT = tuple(range(100, 110))


def one_slot(*objectives: Objective) -> tuple[SteeredFleet, Lease]:
    """A server whose only slot is busy; the session `old` and the prompt of another were served."""
    fleet = SteeredFleet(*objectives, order=ORDER, queue_max_requests=1000)
    fleet.add(1)
    fleet.finish(fleet.pick(session_id="old"))
    fleet.finish(fleet.pick(prompt_blocks=PROMPT, prompt_tokens=640))
    return fleet, fleet.pick(session_id="old")


def order_of_service(fleet: SteeredFleet, lease: Lease, *tickets: Ticket) -> list[Ticket]:
    """The tickets as they are served, one after the other."""
    found = []
    for _ in tickets:
        fleet.finish(lease)
        (ticket,) = (one for one in tickets if one not in found and not fleet.is_waiting(one))
        found.append(ticket)
        lease = fleet.served(ticket)
    return found


def test_a_started_session_passes_new_ones_and_arrival_decides_among_both() -> None:
    fleet, lease = one_slot()
    new, old, other, again = (
        fleet.queue(session_id=session) for session in ("new", "old", "other", "old")
    )
    positions = [fleet.dispatcher.view.position_of(one, fleet.now).position for one in (new, old)]
    assert positions == [3, 1]
    assert order_of_service(fleet, lease, new, old, other, again) == [old, again, new, other]


def test_without_an_id_the_beginning_of_the_prompt_is_the_session() -> None:
    """More than half of it must be known: a new agent may have the instructions of another."""
    fleet, lease = one_slot()
    unknown = fleet.queue(prompt_blocks=(1, 2), prompt_tokens=128)
    half = fleet.queue(prompt_blocks=(*PROMPT, *range(10)), prompt_tokens=1280)
    most = fleet.queue(prompt_blocks=(*PROMPT, *range(9)), prompt_tokens=1216)
    nothing = fleet.queue()
    served = order_of_service(fleet, lease, unknown, half, most, nothing)
    assert served == [most, unknown, half, nothing]


def test_a_new_id_is_a_new_session_whatever_its_prompt() -> None:
    fleet, lease = one_slot()
    new = fleet.queue(session_id="new", prompt_blocks=PROMPT, prompt_tokens=640)
    old = fleet.queue(session_id="old")
    assert order_of_service(fleet, lease, new, old) == [old, new]


def test_after_the_bound_a_new_session_is_passed_by_nobody() -> None:
    fleet, lease = one_slot()
    new = fleet.queue(session_id="new")
    fleet.now += BOUND_S
    old = fleet.queue(session_id="old")
    assert order_of_service(fleet, lease, new, old) == [new, old]


def test_other_tenants_and_criticalities_come_first_as_ever() -> None:
    fleet, lease = one_slot(GOLD)
    fleet.queue(session_id="old", tenant="a")
    first = fleet.queue(session_id="old", tenant="a")
    other = fleet.queue(session_id="new", tenant="b")
    critical = fleet.queue(session_id="new", objective="gold")
    fleet.finish(lease)
    assert not fleet.is_waiting(critical)
    lease = fleet.served(critical)
    for _ in range(2):
        fleet.now += 1.0
        fleet.finish(lease)
        (lease,) = fleet.dispatcher.view.leases()
    assert not fleet.is_waiting(other) and fleet.is_waiting(first)


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_aging_gives_a_turn_to_the_flow_and_not_to_a_new_session(seed: int) -> None:
    """Beside critical requests without end, a started session is served with a turn of aging
    though a new one arrived before it, and the new one is served after the bound."""
    random = Random(seed)
    fleet, lease = one_slot(GOLD)
    new = fleet.queue(session_id="new")
    old = [fleet.queue(session_id="old") for _ in range(random.randint(1, 3))]
    served_old_after = 0
    for count in range(200):
        fleet.queue(objective="gold")
        fleet.queue(objective="gold")
        fleet.now += 2.0
        fleet.finish(lease)
        (lease,) = fleet.dispatcher.view.leases()
        if not served_old_after and not fleet.is_waiting(old[0]):
            served_old_after = count + 1
        if fleet.now - new.entered_at < BOUND_S and any(map(fleet.is_waiting, old)):
            assert fleet.is_waiting(new)
    assert 0 < served_old_after <= 2 * Aging().every
    assert not fleet.is_waiting(new)


def test_a_turn_of_aging_is_kept_for_no_request_that_can_never_fit() -> None:
    """The flow's next request needs two slots, and another client's request holds one of the two:
    the turn goes to the order of the queue."""
    fleet = SteeredFleet(GOLD, order=ORDER, queue_max_requests=1000)
    address = fleet.add(2)
    fleet.finish(fleet.pick(session_id="old"))
    fleet.now += 1.0
    lease = fleet.pick()
    fleet.now += 1.0
    fleet.scrape(address, slots=2, busy_slots=2)
    new = fleet.queue(session_id="new")
    old = fleet.queue(session_id="old", weight_slots=2)
    for _ in range(2 * Aging().every):
        fleet.queue(objective="gold")
        fleet.now += 2.0
        fleet.finish(lease)
        (lease,) = fleet.dispatcher.view.leases()
        assert fleet.is_waiting(old) and fleet.is_waiting(new)


@pytest.mark.parametrize(("session", "expected"), [("old", "started"), ("new", "new")])
def test_explain_says_which_sessions_have_started(session: str, expected: str) -> None:
    fleet, _ = one_slot()
    fleet.queue(session_id="waits")
    answer = explain(
        fleet.dispatcher.view, Request(id="r", timeout_s=9.0, session_id=session), fleet.now
    )
    assert answer.resolved["session"] == expected
    assert answer.resolved["queue_order"] == "started sessions first, within its flow"
    assert answer.position == (1 if session == "old" else 2)
