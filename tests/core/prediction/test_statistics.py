"""Claims about extproc/core/prediction/statistics.py."""

from __future__ import annotations

import pytest

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
