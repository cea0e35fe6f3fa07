"""The rules of the ledger, against servers with a known true state."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.core.queue.flow_order import Discipline, QueueOrder
from tests.core.model_fleet import ModelFleet, World
from tests.long_run import IS_LONG_RUN


@given(seed=st.integers(0, 2**32), world=st.sampled_from(World))
@settings(max_examples=60, deadline=None)
def test_every_claim_holds_after_every_event(seed: int, world: World) -> None:
    """Short runs from many seeds."""
    fleet = ModelFleet(Random(seed), world)
    fleet.play(300)


@pytest.mark.parametrize("discipline", [Discipline.SHORTEST_EXPECTED, Discipline.STARTED_FIRST])
@given(seed=st.integers(0, 2**32), world=st.sampled_from(World))
@settings(max_examples=60, deadline=None)
def test_the_claims_hold_in_orders_with_classes(
    discipline: Discipline, seed: int, world: World
) -> None:
    """No slot is idle for them, and a request that has waited for the bound is passed by none."""
    order = QueueOrder(discipline=discipline, max_overtaken_s=1.0)
    fleet = ModelFleet(Random(seed), world, order=order)
    fleet.play(300)


@pytest.mark.parametrize("world", World)
def test_a_long_run(world: World) -> None:
    """Most events in the strictest world; `make nightly` has 100,000 of them there."""
    fleet = ModelFleet(Random(20_26), world)
    steps = 20_000 if world is World.QUIET else 12_500
    fleet.play(5 * steps if IS_LONG_RUN else steps)
    assert len(fleet.settled_ids) > steps / 10
