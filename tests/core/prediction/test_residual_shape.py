"""Claims about extproc/core/prediction/residual_shape.py."""

from __future__ import annotations

from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.prediction.residual_shape import REFRESH, STEP, ResidualShape


@given(
    st.lists(st.integers(-12, 12), min_size=1, max_size=40),
    st.floats(0.1, 1000.0),
    st.floats(0.0, 50.0),
    st.one_of(st.just(inf), st.floats(0.0, 2000.0)),
)
def test_the_mean_is_that_of_the_cut_values(
    buckets: list[int], scale: float, offset: float, limit: float
) -> None:
    shape = ResidualShape(decay=1.0)
    for bucket in buckets:
        shape.add(bucket * STEP)
    values = [min(limit, max(0.0, scale * exp(bucket * STEP) - offset)) for bucket in buckets]
    expected = sum(values) / len(values)
    assert shape.mean(scale, offset, limit) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_without_entries_the_mean_is_nothing() -> None:
    assert ResidualShape(decay=0.9).mean(5.0, 8.0, inf) == 0.0


def test_new_factors_count_soon() -> None:
    shape = ResidualShape(decay=0.5)
    shape.add(0.0)
    assert shape.mean(10.0, 0.0, inf) == pytest.approx(10.0)
    for _ in range(REFRESH):
        shape.add(4 * STEP)
    assert shape.mean(10.0, 0.0, inf) == pytest.approx(10.0 * exp(4 * STEP), rel=1e-3)
