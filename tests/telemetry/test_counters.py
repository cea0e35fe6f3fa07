"""Claims about extproc/telemetry/counters.py: numbers that only grow, bound by bound."""

from __future__ import annotations

import pytest

from extproc.telemetry.counters import Counter, Histogram


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0), (0.5, 0), (0.500001, 1), (2.0, 1), (2.1, 2), (1e9, 2)]
)
def test_a_value_falls_below_the_first_bound_that_is_not_smaller(value: float, bucket: int) -> None:
    """So a bucket holds its own bound, as Prometheus' `le` says; the last one has no bound."""
    histogram = Histogram((0.5, 2.0))
    histogram.observe(value)
    counts = histogram.read().counts
    assert counts.index(1) == bucket and sum(counts) == 1


def test_a_distribution_is_of_one_moment() -> None:
    """What is observed later does not reach one that was read before."""
    histogram = Histogram((1.0,))
    histogram.observe(0.5)
    early = histogram.read()
    histogram.observe(3.0)
    assert (early.count, early.total, early.counts) == (1, 0.5, (1, 0))
    late = histogram.read()
    assert (late.count, late.total, late.bounds) == (2, 3.5, (1.0,))


def test_counts_are_kept_apart_by_their_labels() -> None:
    """In their order; a reading is a copy."""
    counter = Counter()
    counter.add("served", "standard")
    counter.add("served", "standard", count=2)
    counter.add("standard", "served")
    read = counter.read()
    counter.add("served", "standard")
    assert read == {("served", "standard"): 3, ("standard", "served"): 1}
