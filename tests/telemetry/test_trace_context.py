"""Claims about extproc/telemetry/trace_context.py."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.telemetry.trace_context import Sampler, Sampling, TraceParent, parse_trace_parent

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"


def test_reads_a_traceparent() -> None:
    """Ids and the sampled flag are what the standard says; other flags are passed over."""
    sampled, unsampled = (f"00-{TRACE_ID}-{SPAN_ID}-{flags}" for flags in ("01", "02"))
    assert parse_trace_parent(sampled) == TraceParent(TRACE_ID, SPAN_ID, True)
    assert parse_trace_parent(unsampled) == TraceParent(TRACE_ID, SPAN_ID, False)


def test_a_later_version_may_carry_more() -> None:
    """What stands behind the flags of a later version is not looked at."""
    assert parse_trace_parent(f"01-{TRACE_ID}-{SPAN_ID}-01-more") is not None
    assert parse_trace_parent(f"01-{TRACE_ID}-{SPAN_ID}-01more") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"00-{TRACE_ID}-{SPAN_ID}-0",
        f"00-{TRACE_ID}-{SPAN_ID}-01-more",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{TRACE_ID.upper()}-{SPAN_ID}-01",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00_{TRACE_ID}_{SPAN_ID}_01",
        f"00-{'x' * 32}-{SPAN_ID}-01",
    ],
)
def test_a_malformed_one_counts_as_none(text: str) -> None:
    """Whoever writes nonsense begins a new trace, and harms nothing."""
    assert parse_trace_parent(text) is None


@given(st.text(max_size=80))
def test_no_text_raises(text: str) -> None:
    """Headers come from untrusted clients."""
    parse_trace_parent(text)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_callers_decision_counts(ratio: float) -> None:
    """Whatever the ratio, a caller's yes is yes and no is no, under the caller's trace id."""
    sampler = Sampler(Sampling(ratio=ratio), Random(1))
    assert sampler.decide(TraceParent(TRACE_ID, SPAN_ID, True)) == TRACE_ID
    assert sampler.decide(TraceParent(TRACE_ID, SPAN_ID, False)) is None


def test_the_ratio_is_the_share_of_new_traces() -> None:
    """Of many requests without a parent that share is recorded, each under an id of its own."""
    sampler = Sampler(Sampling(ratio=0.1), Random(1))
    taken = [one for _ in range(10_000) if (one := sampler.decide(None)) is not None]
    assert 900 < len(taken) < 1100 and len(set(taken)) == len(taken)
    assert all(len(one) == 32 for one in taken)


def test_all_and_none() -> None:
    """A ratio of 1 takes every one, of 0 none."""
    assert all(Sampler(Sampling(ratio=1.0), Random(1)).decide(None) for _ in range(1000))
    assert not any(Sampler(Sampling(ratio=0.0), Random(1)).decide(None) for _ in range(1000))


def test_without_following_the_ratio_decides_by_the_trace_id() -> None:
    """Two processes with one ratio decide alike on one trace, whatever the caller's flag."""
    sampling = Sampling(ratio=0.5, follows_parent=False)
    one, other = Sampler(sampling, Random(1)), Sampler(sampling, Random(2))
    numbers = Random(3)
    parents = [TraceParent(f"{numbers.getrandbits(128):032x}", SPAN_ID, False) for _ in range(1000)]
    decisions = [one.decide(parent) for parent in parents]
    assert decisions == [other.decide(parent) for parent in parents]
    assert 400 < sum(decision is not None for decision in decisions) < 600


def test_an_impossible_ratio_is_rejected() -> None:
    """A share above one is a mistake of the caller."""
    with pytest.raises(ValueError):
        Sampling(ratio=1.5)
