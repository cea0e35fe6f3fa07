"""Claims about extproc/core/state.py."""

from __future__ import annotations

from random import Random

import pytest

from extproc.core.learner import Learner
from extproc.core.objective import Criticality
from extproc.core.options import DispatcherOptions
from extproc.core.queue.flow_order import Discipline, QueueOrder
from extproc.core.request import Request
from extproc.core.scheduler.audit import faults
from extproc.core.state import State


def state(discipline: Discipline = Discipline.FIRST_COME) -> State:
    return State(Random(1), DispatcherOptions(order=QueueOrder(discipline=discipline)))


def test_a_new_state_is_empty_and_consistent() -> None:
    new = state()
    assert (len(new.fleet), len(new.queue), len(new.in_flight)) == (0, 0, 0)
    assert faults(new, 0.0) == []


def test_two_states_share_nothing() -> None:
    """A simulation runs many dispatchers in one process."""
    one, other = state(), state()
    one.queue.enter(Request(id="r", timeout_s=1.0), 0.0)
    assert len(one.queue) == 1 and not other.queue


@pytest.mark.parametrize("discipline", Discipline)
def test_sizes_are_learned_only_if_they_order_the_queue(discipline: Discipline) -> None:
    """Otherwise a request costs nothing for them."""
    assert (state(discipline).sizes is None) is (discipline is not Discipline.SHORTEST_EXPECTED)
    assert state(discipline).queue.order.discipline is discipline


def test_the_use_of_every_criticality_is_counted() -> None:
    uses = state().use_by_criticality
    assert set(uses) == set(Criticality)
    assert len(set(map(id, uses.values()))) == len(Criticality)


def test_all_that_learns_of_endpoints_is_listed() -> None:
    """A part that is missing in the list would know of endpoints that are gone."""
    new = state()
    parts = [*vars(new).values(), *new.use_by_criticality.values()]
    learners = {id(part): type(part).__name__ for part in parts if isinstance(part, Learner)}
    assert len(learners) >= len(Criticality) + 9
    assert {id(part): type(part).__name__ for part in new.learners} == learners
