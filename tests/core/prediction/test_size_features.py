"""Claims about extproc/core/prediction/size_features.py."""

from __future__ import annotations

from dataclasses import replace

from extproc.core.prediction.size_features import DEPTHS, KINDS, features_of
from extproc.core.request import Kind, Request

CHAT = Request(
    id="r",
    timeout_s=1.0,
    traits="/v1/chat/completions",
    tenant="t",
    prompt_tokens=900,
    max_tokens=100,
    prompt_blocks=tuple(range(1000, 1010)),
)


def test_general_features_come_first() -> None:
    features = features_of(CHAT, "m", "chat")
    kinds = [kind for kind, _ in features.keys]
    assert kinds == sorted(kinds)
    assert len(kinds) == 5 + sum(depth <= 10 for depth in DEPTHS) <= KINDS
    assert (features.model, features.max_tokens, features.flow) == ("m", 100, ("chat", "t", ""))


def test_similar_requests_share_features() -> None:
    """The same path and objective, but another tenant, bound, length and, after four blocks,
    another prompt."""
    other = replace(
        CHAT, tenant="u", max_tokens=5000, prompt_tokens=9, prompt_blocks=(1000, 1001, 1002, 1003)
    )
    shared = set(features_of(CHAT, "m", "chat").keys) & set(features_of(other, "m", "chat").keys)
    assert len(shared) == 2 + 3
    assert features_of(other, "m", "chat").group == features_of(CHAT, "m", "chat").group


def test_bounds_and_lengths_count_by_their_magnitude() -> None:
    near = replace(CHAT, max_tokens=101, prompt_tokens=901)
    assert features_of(near, "m", "chat").keys == features_of(CHAT, "m", "chat").keys


def test_a_request_that_says_nothing_has_features() -> None:
    bare = Request(id="r", timeout_s=1.0)
    embedding = replace(bare, kind=Kind.EMBEDDING)
    assert len(features_of(bare, None, "").keys) == 3
    assert features_of(bare, None, "").keys != features_of(embedding, None, "").keys
