"""Claims about extproc/core/prediction/statistics.py."""

from __future__ import annotations

from math import inf, isfinite, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extproc.core.prediction.statistics import DecayingMean, RobustLinearFit


@pytest.mark.parametrize("before", [1.0, 0.0])
def test_a_line_through_equal_points_still_changes(before: float) -> None:
    """Constant samples have no usual residual: a lasting change is followed all the same."""
    fit = RobustLinearFit()
    for _ in range(20):
        fit.add(100.0, before)
    for _ in range(100):
        fit.add(100.0, 3.0)
    a, b = fit.coefficients((0.0, 0.0), prior_weight=0.0)
    assert a + b * 100.0 == pytest.approx(3.0, rel=0.25)


def test_one_outlier_changes_a_line_little() -> None:
    """Also if all others lie on the line."""
    fit = RobustLinearFit()
    for x in range(20):
        fit.add(float(x), 1.0 + 0.1 * x)
    fit.add(10.0, 500.0)
    a, b = fit.coefficients((0.0, 0.0), prior_weight=0.0)
    assert a + b * 10.0 == pytest.approx(2.0, rel=0.05)


def test_a_mean_of_nothing_follows_what_comes() -> None:
    """A multiple of 0 is 0: that bounds no value."""
    mean = DecayingMean(clip=8.0)
    for _ in range(5):
        mean.add(0.0)
    for _ in range(200):
        mean.add(3.0)
    assert mean.value(0.0) == pytest.approx(3.0, rel=0.1)


def test_one_outlier_changes_a_mean_little() -> None:
    mean = DecayingMean(clip=8.0)
    for _ in range(50):
        mean.add(1.0)
    mean.add(1000.0)
    assert mean.value(0.0) < 1.3


@pytest.mark.parametrize("value", [inf, -inf, nan, 1e300])
def test_values_that_cannot_be_calculated_with_are_ignored(value: float) -> None:
    """One of them would make every later result invalid."""
    fit, mean = RobustLinearFit(), DecayingMean(clip=8.0)
    for _ in range(10):
        fit.add(100.0, 2.0)
        mean.add(2.0)
    line, middle = fit.coefficients((0.0, 0.0)), mean.value(0.0)
    fit.add(value, 2.0)
    fit.add(100.0, value)
    mean.add(value)
    assert (fit.coefficients((0.0, 0.0)), mean.value(0.0)) == (line, middle)


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=40), st.floats(0.0, 10.0))
@example([(1.1125369292536007e-308, -2.0)], 0.0)
def test_no_samples_make_a_result_invalid(
    samples: list[tuple[float, float]], prior_weight: float
) -> None:
    """Whatever a server says, a cost remains a number."""
    fit, mean = RobustLinearFit(), DecayingMean(clip=8.0)
    for x, y in samples:
        fit.add(x, y)
        mean.add(y)
        assert all(map(isfinite, fit.coefficients((0.1, 0.0005), prior_weight)))
        assert isfinite(mean.value(1.0, prior_weight))
