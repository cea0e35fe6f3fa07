"""The ledger's promises, against servers that know the truth."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.model_fleet import ModelFleet, World


@given(seed=st.integers(0, 2**32), world=st.sampled_from(World))
@settings(max_examples=60, deadline=None)
def test_every_claim_holds_after_every_event(seed: int, world: World) -> None:
    """Short runs from many beginnings."""
    fleet = ModelFleet(Random(seed), world)
    fleet.change_fleet()
    for _ in range(300):
        fleet.step()
    fleet.finish_all()


@pytest.mark.parametrize("world", World)
def test_a_long_run(world: World) -> None:
    """100,000 events in the strictest world, a quarter of them in the others."""
    fleet = ModelFleet(Random(20_26), world)
    fleet.change_fleet()
    for _ in range(100_000 if world is World.QUIET else 25_000):
        fleet.step()
    fleet.finish_all()
    assert len(fleet.settled_ids) > 2_500
