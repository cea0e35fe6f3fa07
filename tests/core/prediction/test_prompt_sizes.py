"""Claims about extproc/core/prediction/prompt_sizes.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.prediction.prompt_sizes import ALL, MAX_MODELS, UNKNOWN_LEAST, PromptSizes
from extproc.core.request import Request


def test_before_anything_was_seen_the_bound_is_far_below() -> None:
    sizes = PromptSizes()
    assert sizes.likely("m", 1000) == 1000
    assert sizes.at_least("m", 1000) == 1000 * UNKNOWN_LEAST


def test_models_differ_and_requests_without_a_model_know_all() -> None:
    sizes = PromptSizes()
    for _ in range(50):
        sizes.record("chinese", 4000, 1000)
        sizes.record("english", 950, 1000)
    assert sizes.likely("chinese", 100) == pytest.approx(400, rel=0.2)
    assert sizes.likely("english", 100) == pytest.approx(95, rel=0.1)
    assert sizes.at_least("chinese", 100) == pytest.approx(200, rel=0.01)
    assert sizes.at_least(ALL, 100) == sizes.at_least("unknown", 100)
    assert sizes.at_least(ALL, 100) == pytest.approx(47.5, rel=0.1)


@given(st.lists(st.floats(0.1, 8.0), min_size=1, max_size=100))
def test_the_bound_is_half_of_the_least_ratio_or_less(ratios: list[float]) -> None:
    """Of all that were seen lately, as long as they are few."""
    sizes = PromptSizes()
    for ratio in ratios:
        sizes.record("m", round(1000 * ratio), 1000)
    seen = min(round(1000 * ratio) / 1000 for ratio in ratios)
    grown = 1.005 ** len(ratios)
    assert sizes.at_least("m", 1000) <= 500 * seen * grown + 1e-6
    assert sizes.at_least("m", 1000) <= sizes.likely("m", 1000) * grown or sizes.likely("m", 1000)


def test_short_prompts_show_nothing_and_models_are_bounded() -> None:
    """Of a short prompt most is the chat template."""
    sizes = PromptSizes()
    sizes.record("m", 80, 10)
    sizes.record("m", 0, 1000)
    assert sizes.likely("m", 1000) == 1000
    for number in range(2 * MAX_MODELS):
        sizes.record(f"m{number}", 1000, 1000)
    assert len(sizes._ratios) <= MAX_MODELS


def test_short_prompts_say_nothing_of_long_ones() -> None:
    """Of each a template adds 20 tokens, for which more are added to the estimate. So a long prompt
    has a larger part of its estimate than all short ones that were seen."""
    sizes = PromptSizes()
    short, long = (
        Request(id="r", timeout_s=1.0, prompt_tokens=tokens, prompt_chars=4 * tokens)
        for tokens in (30, 3000)
    )
    for _ in range(500):
        sizes.record_most("m", short, 50)
    assert 50 <= sizes.most("m", short)[0] < 60
    assert min(sizes.most("m", long)[0], [*sizes.most("m", long)[1]][-1][0]) > 3020
    sizes.record_most("m", long, 3020)
    for _ in range(500):
        sizes.record_most("m", short, 50)
    assert 3020 < sizes.most("m", long)[0] < 3200
    assert [*sizes.most("m", long)[1]][-1][0] == pytest.approx(3020)
    assert 50 <= sizes.most("m", short)[0] < 60


def test_impossible_lengths_show_nothing() -> None:
    sizes = PromptSizes()
    for real_tokens in (0, -5, 10**40):
        sizes.record("m", real_tokens, 1000)
    assert sizes.likely("m", 1000) == 1000


def test_the_parts_of_the_lengths_are_those_that_were_seen() -> None:
    """Nine of ten prompts have the tokens that their text suggests, one has twice as many: they
    count as a little more, the most first, and all of their chances are 1 together."""
    sizes = PromptSizes()
    request = Request(id="one", timeout_s=1.0, prompt_tokens=936, traits="chat")
    assert not [*sizes.most("m", request)[1]]
    for number in range(1000):
        sizes.record_most("m", request, 2000 if number % 10 == 0 else 1000)
    parts = [*sizes.most("m", request)[1]]
    assert sum(share for _, share in parts) == pytest.approx(1.0)
    assert [tokens for tokens, _ in parts] == sorted((tokens for tokens, _ in parts), reverse=True)
    assert 0.09 <= sum(share for tokens, share in parts if tokens > 1500) <= 0.26  # a part more
    assert 2000 <= parts[0][0] <= 2200 and 1000 <= parts[-1][0] <= 1050
    assert parts[0][0] >= sizes.most("m", request)[0]
