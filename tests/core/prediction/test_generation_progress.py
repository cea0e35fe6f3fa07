"""Claims about extproc/core/prediction/generation_progress.py, with numbers computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.core.observation import SlotReading
from extproc.core.prediction.generation_progress import GenerationProgress


def seen(progress: GenerationProgress, at: float, decoded: int, processed: int = 0) -> None:
    reading = SlotReading(
        task_id=1,
        prompt_tokens=700,
        cached_tokens=100,
        processed_tokens=processed,
        decoded_tokens=decoded,
    )
    progress.seen(reading, at - 0.01, at)


def test_nothing_is_known_during_the_prefill() -> None:
    progress = GenerationProgress(unseen_until=9.0, seen_at=10.0)
    seen(progress, 10.0, 0)
    seen(progress, 12.0, 0, processed=512)
    assert progress.first_token(0.05) is None
    assert progress.prefill_until == pytest.approx(11.99)


def test_after_one_scrape_the_servers_rate_is_used() -> None:
    """11 tokens at 0.05 s: the first came 10.5 tokens ago, 14 - 0.525."""
    progress = GenerationProgress(unseen_until=9.0, seen_at=10.0)
    seen(progress, 10.0, 0)
    seen(progress, 14.0, 11, processed=600)
    first = progress.first_token(0.05)
    assert first is not None and not first.is_own_pace
    assert first.at == pytest.approx(13.475)
    assert first.slack_s == pytest.approx(0.15 * 0.525 + 0.05)
    assert progress.whole_prompt_tokens == 700


def test_after_two_scrapes_the_tasks_own_rate_is_used() -> None:
    """20 tokens in 2 s are 0.1 s each, independent of the server's rate: 14 - 10.5 * 0.1."""
    progress = GenerationProgress(unseen_until=9.0, seen_at=10.0)
    seen(progress, 14.0, 11, processed=600)
    seen(progress, 16.0, 31, processed=600)
    first = progress.first_token(0.05)
    assert first is not None and first.is_own_pace
    assert first.at == pytest.approx(12.95)


def test_never_before_a_scrape_without_a_token() -> None:
    progress = GenerationProgress(unseen_until=9.0, seen_at=10.0)
    seen(progress, 13.9, 0)
    seen(progress, 14.0, 11, processed=600)
    first = progress.first_token(0.05)
    assert first is not None and first.at == pytest.approx(13.89)


@given(
    first_at=st.floats(0.0, 100.0),
    token_s=st.floats(0.001, 1.0),
    gaps=st.lists(st.floats(0.01, 5.0), min_size=2, max_size=10),
    assumed_s=st.floats(0.001, 1.0),
)
def test_an_even_rate_is_traced_back_to_within_half_a_token(
    first_at: float, token_s: float, gaps: list[float], assumed_s: float
) -> None:
    """For any scrapes: once its own rate is known, the error is that of the rate over the tokens
    traced back, and half a token."""
    progress, at = GenerationProgress(first_at, first_at), first_at
    tokens = []
    for gap in gaps:
        at += gap
        tokens.append(1 + int((at - first_at) / token_s))
        seen(progress, at, tokens[-1])
    first = progress.first_token(assumed_s)
    assert first is not None
    if first.is_own_pace:
        pace_error_s = token_s / (tokens[-1] - tokens[0] - 1)
        assert abs(first.at - first_at) <= token_s + tokens[0] * 2 * pace_error_s


def test_what_was_seen_is_told_with_its_time() -> None:
    """Before the first token the last scrape that saw it, or the first one."""
    progress = GenerationProgress(unseen_until=9.0, seen_at=10.0)
    assert progress.seen_tokens() == (None, None, 0, 10.0)
    seen(progress, 12.0, 0, processed=512)
    _, processed, decoded, seen_at = progress.seen_tokens()
    assert (processed, decoded) == (512, 0) and seen_at == pytest.approx(11.99)
    seen(progress, 14.0, 11, processed=600)
    assert progress.seen_tokens()[1:] == (600, 11, 14.0)
