"""The ledger's promises, against servers that know the truth."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.model_fleet import ModelFleet


@given(seed=st.integers(0, 2**32), with_strangers=st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_claim_holds_after_every_event(seed: int, with_strangers: bool) -> None:
    fleet = ModelFleet(Random(seed), with_strangers=with_strangers)
    fleet.change_fleet()
    for _ in range(300):
        fleet.step()
    fleet.finish_all()


@pytest.mark.parametrize("with_strangers", [False, True])
def test_a_run_of_100_000_steps(with_strangers: bool) -> None:
    fleet = ModelFleet(Random(20_26), with_strangers=with_strangers)
    fleet.change_fleet()
    for _ in range(100_000):
        fleet.step()
    fleet.finish_all()
    assert len(fleet.ended) > 10_000
