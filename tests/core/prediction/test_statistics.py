"""Claims about extproc/core/prediction/statistics.py."""

from __future__ import annotations

from math import inf, isfinite, nan

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extproc.core.prediction.statistics import (
    LARGEST_GAIN,
    DecayingHistogram,
    DecayingMean,
    RobustLinearFit,
)


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


def test_an_empty_one_says_nothing() -> None:
    histogram = DecayingHistogram()
    assert histogram.weight == 0.0
    assert list(histogram.shares()) == []
    assert histogram.quantile(0.5) is None
    assert histogram.share_below(3) == 0.0


def test_amounts_weigh() -> None:
    histogram = DecayingHistogram(decay=1.0)
    histogram.add(1, 3.0)
    histogram.add(5)
    assert dict(histogram.shares()) == {1: 0.75, 5: 0.25}
    assert histogram.share_below(5) == 0.75
    assert (histogram.quantile(0.75), histogram.quantile(0.76)) == (1, 5)


def test_old_entries_fade() -> None:
    """After many entries elsewhere nearly nothing is left, and the weight is bounded."""
    histogram = DecayingHistogram(decay=0.9)
    histogram.add(0)
    for _ in range(100):
        histogram.add(7)
    assert histogram.share_below(7) < 1e-4
    assert histogram.weight == pytest.approx(10.0, rel=1e-3)


def test_buckets_are_bounded() -> None:
    histogram = DecayingHistogram(limit=3)
    for bucket in (-100, 100):
        histogram.add(bucket)
    assert {bucket for bucket, _ in histogram.shares()} == {-3, 3}


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=80))
def test_against_weights_that_are_multiplied(buckets: list[int]) -> None:
    """The same as to multiply all older amounts by the decay each time, also where it scales its
    own numbers back."""
    histogram = DecayingHistogram(decay=0.5)
    plain = dict.fromkeys(range(-5, 6), 0.0)
    for bucket in buckets:
        histogram.add(bucket)
        plain = {each: 0.5 * amount for each, amount in plain.items()}
        plain[bucket] += 1.0
    total = sum(plain.values())
    for bucket, share in histogram.shares():
        assert share == pytest.approx(plain[bucket] / total, abs=1e-8)
    assert histogram.weight == pytest.approx(total, rel=1e-6)
    assert 2.0**80 > LARGEST_GAIN, "so the longest lists reach it"


def test_weights_that_become_large_are_scaled_back() -> None:
    """And what became too little to matter is forgotten: no number overflows."""
    histogram = DecayingHistogram(decay=0.5)
    histogram.add(-3)
    for number in range(500):
        histogram.add(number % 2)
    assert {bucket for bucket, _ in histogram.shares()} == {0, 1}
    assert histogram.weight == pytest.approx(2.0)
    assert histogram.share_below(1) == pytest.approx(1 / 3)


def test_without_entries_there_is_no_share_and_no_quantile() -> None:
    histogram = DecayingHistogram()
    assert (histogram.quantile(0.5), histogram.share_below(9), histogram.weight) == (None, 0.0, 0.0)
