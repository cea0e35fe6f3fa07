from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extproc.core.prompt_blocks import BLOCK_CHARS, chain, reseeded

SEED = ("tiny", None)
TEXT = st.text(max_size=4 * BLOCK_CHARS)


def test_a_text_has_a_hash_for_each_full_block() -> None:
    assert len(chain(SEED, "a" * (3 * BLOCK_CHARS - 1))) == 2
    assert len(chain(SEED, "a" * (3 * BLOCK_CHARS))) == 3
    assert chain(SEED, "short") == ()


def test_equal_blocks_at_different_places_differ() -> None:
    links = chain(SEED, "a" * (3 * BLOCK_CHARS))
    assert len(set(links)) == 3


def test_another_model_or_adapter_shares_nothing() -> None:
    text = "a" * BLOCK_CHARS
    chains = [chain(seed, text) for seed in (SEED, ("small", None), ("tiny", "pirate"))]
    assert len({links[0] for links in chains}) == 3


@given(TEXT)
def test_a_chain_can_be_reseeded_for_another_model(text: str) -> None:
    """As if the chain had been computed for that model at once."""
    for seed in (SEED, ("small", None), ("tiny", "pirate"), (None, None, 1, 2)):
        assert reseeded(chain(SEED, text), SEED, seed) == chain(seed, text)


@given(TEXT, TEXT, TEXT)
def test_texts_share_the_blocks_of_their_common_beginning(
    beginning: str, left: str, right: str
) -> None:
    shared = len(beginning) // BLOCK_CHARS
    assert chain(SEED, beginning + left)[:shared] == chain(SEED, beginning + right)[:shared]


@given(TEXT, st.integers(min_value=0))
def test_a_changed_character_changes_its_block_and_all_later_ones(text: str, at: int) -> None:
    if len(text) < BLOCK_CHARS:
        return
    at %= len(text)
    changed = text[:at] + ("a" if text[at] != "a" else "b") + text[at + 1 :]
    block = at // BLOCK_CHARS
    before, after = chain(SEED, text), chain(SEED, changed)
    assert before[:block] == after[:block]
    assert not set(before[block:]) & set(after[block:])
