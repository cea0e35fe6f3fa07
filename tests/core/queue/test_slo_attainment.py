"""Claims about extproc/core/queue/slo_attainment.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.queue.slo_attainment import BUCKET_S, BUCKETS, Attainment, SloAttainment


def test_attainment_covers_five_minutes() -> None:
    attainment = Attainment()
    assert attainment.share(0.0) == 1.0
    attainment.record(was_met=False, now=1000.0)
    attainment.record(was_met=True, now=1100.0)
    assert attainment.share(1100.0) == 0.5
    assert attainment.share(1000.0 + 299.0) == 0.5
    assert attainment.share(1000.0 + 300.0) == 1.0
    assert attainment.share(1e9) == 1.0


def test_counts_since_the_start_do_not_roll() -> None:
    """They are counters of metrics, which never fall."""
    attainment = SloAttainment()
    attainment.record("chat", was_met=True, now=0.0)
    attainment.record("chat", was_met=False, now=1e6)
    assert attainment.totals() == {("chat", "met"): 1, ("chat", "missed"): 1}


def test_without_an_objective_or_a_request_the_share_is_whole() -> None:
    """Such a queue is served after every one that missed its SLO."""
    attainment = SloAttainment()
    assert attainment.share(None, 0.0) == attainment.share("chat", 0.0) == 1.0
    assert attainment.totals() == {}


def test_objectives_do_not_affect_each_other() -> None:
    attainment = SloAttainment()
    attainment.record("chat", was_met=False, now=0.0)
    attainment.record("batch", was_met=True, now=0.0)
    assert (attainment.share("chat", 0.0), attainment.share("batch", 0.0)) == (0.0, 1.0)


@given(st.lists(st.tuples(st.floats(0, 400), st.booleans()), max_size=40))
def test_against_a_plain_list(results: list[tuple[float, bool]]) -> None:
    """The share of the results in the last 30 buckets of ten seconds."""
    attainment, now = Attainment(), 0.0
    seen: list[tuple[int, bool]] = []
    for passed_s, was_met in results:
        now += passed_s
        attainment.record(was_met, now)
        bucket = int(now // BUCKET_S)
        seen.append((bucket, was_met))
        recent = [met for at, met in seen if at > bucket - BUCKETS]
        assert attainment.share(now) == sum(recent) / len(recent)


def test_a_clock_that_steps_back_loses_no_result() -> None:
    """Calls of one turn may have times in another order."""
    attainment = Attainment()
    attainment.record(was_met=True, now=100.0)
    attainment.record(was_met=False, now=80.0)
    assert attainment.share(100.0) == 0.5
