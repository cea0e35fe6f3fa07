"""Claims about extproc/core/fairness.py: who used how much of the fleet."""

from __future__ import annotations

import pytest

from extproc.core.fairness import MAX_FLOWS, Fairness, Flow
from extproc.core.objective import NO_OBJECTIVE, Objective
from extproc.core.outcome import Picked
from tests.fakes.steered_fleet import SteeredFleet


def serve(fairness: Fairness, flow: Flow, *, expected: float = 1.0, used: float = 1.0) -> None:
    fairness.charge(flow, expected, has_waited=True)
    fairness.settle(flow, expected, used)


@pytest.mark.parametrize("expected", [1.0, 0.1])
def test_who_weighs_three_times_as_much_is_served_three_times_as_often(expected: float) -> None:
    """Also where each request takes ten times as long as was expected."""
    fairness = Fairness()
    flows = [fairness.flow(Objective(name=name, weight=w), "") for name, w in (("a", 3), ("b", 1))]
    fairness.contention_began()
    for flow in flows:
        fairness.entered(flow)
    served = [0, 0]
    for _ in range(400):
        index = min((0, 1), key=lambda number: flows[number].virtual_s)
        serve(fairness, flows[index], expected=expected)
        served[index] += 1
    assert served == [pytest.approx(300, abs=3), pytest.approx(100, abs=3)]


def test_who_comes_back_begins_where_its_class_is() -> None:
    """While the others had a line: absence saves nothing up."""
    fairness = Fairness()
    busy, away = fairness.flow(NO_OBJECTIVE, "busy"), fairness.flow(NO_OBJECTIVE, "away")
    fairness.contention_began()
    for flow in (busy, away):
        fairness.entered(flow)
    fairness.left(away)
    for _ in range(100):
        serve(fairness, busy)
    fairness.entered(away)
    assert away.virtual_s >= busy.virtual_s - 1.0


def test_use_while_nobody_waited_is_forgotten() -> None:
    """It kept nobody waiting, so whoever used much then owes nothing."""
    fairness = Fairness()
    busy, idle = fairness.flow(NO_OBJECTIVE, "busy"), fairness.flow(NO_OBJECTIVE, "idle")
    fairness.contention_began()
    fairness.entered(busy)
    fairness.left(busy)
    for _ in range(100):
        fairness.charge(busy, 1.0, has_waited=False)
        fairness.settle(busy, 1.0, 1.0)
    fairness.contention_began()
    for flow in (idle, busy):
        fairness.entered(flow)
    assert busy.virtual_s == pytest.approx(idle.virtual_s, abs=1.0)


def test_several_slots_are_used_at_once() -> None:
    """A request on two slots for a second is as much as one on one slot for two."""
    fleet = SteeredFleet()
    fleet.add(3)
    for name, slots, seconds in (("wide", 2, 5.0), ("long", 1, 10.0)):
        outcome = fleet.submit(fairness_id=name, weight_slots=slots)
        assert isinstance(outcome, Picked)
        fleet.now += seconds
        fleet.finish(outcome.lease)
    fairness = fleet.dispatcher.state.fairness
    wide, long = (fairness.peek(NO_OBJECTIVE, name) for name in ("wide", "long"))
    assert wide.virtual_s - wide.credit_s == pytest.approx(long.virtual_s - long.credit_s)


def test_who_neither_waits_nor_runs_is_forgotten_seldom() -> None:
    """Each time costs a look at all: not for each newcomer where ten thousand tenants wait."""
    fairness = Fairness()
    for number in range(MAX_FLOWS):
        fairness.entered(fairness.flow(NO_OBJECTIVE, str(number)))
    for number in range(MAX_FLOWS):
        fairness.flow(NO_OBJECTIVE, f"idle {number}")
    assert len(fairness) == 2 * MAX_FLOWS
    fairness.flow(NO_OBJECTIVE, "one more")
    assert len(fairness) == MAX_FLOWS + 1
    for number in range(MAX_FLOWS):
        fairness.left(fairness.flow(NO_OBJECTIVE, str(number)))
    for number in range(MAX_FLOWS + 1):
        fairness.flow(NO_OBJECTIVE, f"new {number}")
    assert len(fairness) <= MAX_FLOWS
