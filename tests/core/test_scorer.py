"""Claims about extproc/core/scorer.py."""

from __future__ import annotations

import pytest

from extproc.core.address import Address
from extproc.core.blocks import BLOCK_TOKENS
from extproc.core.request import Kind, Request
from extproc.core.timing import COLD, UNKNOWN_PROMPT_TOKENS
from tests.fakes.steered_fleet import SteeredFleet


@pytest.mark.parametrize(
    ("prompt_tokens", "counted"), [(0, 0), (40, 40), (None, UNKNOWN_PROMPT_TOKENS)]
)
@pytest.mark.parametrize("session", [None, "never seen"])
def test_an_empty_prompt_is_not_an_unknown_one(
    prompt_tokens: int | None, counted: int, session: str | None
) -> None:
    """Whatever else is known of the request; and the cost counts the same first token."""
    fleet = SteeredFleet()
    address = fleet.add(1)
    scorer = fleet.dispatcher.state.scorer
    request = Request(id="r", timeout_s=0.0, prompt_tokens=prompt_tokens, session_id=session)
    first_token_s, cached_tokens = scorer.first_token(request, address, fleet.now)
    assert (first_token_s, cached_tokens) == (COLD.first_token_s(counted), 0.0)
    assert scorer.cost(request, address, 0, fleet.now).first_token_s == first_token_s


CHAIN = tuple(range(40))


def remembering(capacity_blocks: float) -> tuple[SteeredFleet, Address]:
    """A fleet whose only endpoint has read the chain, then as much again."""
    fleet = SteeredFleet()
    address = fleet.add(1)
    prefixes = fleet.dispatcher.state.prefixes
    prefixes.learn(address, CHAIN, capacity_blocks)
    prefixes.learn(address, tuple(range(1000, 1040)), capacity_blocks)
    return fleet, address


def cached(fleet: SteeredFleet, address: Address, *, is_hopeful: bool, **asked: object) -> float:
    request = Request(id="r", timeout_s=0.0, prompt_blocks=CHAIN, **asked)  # type: ignore[arg-type]
    return fleet.dispatcher.state.scorer.cached_tokens(request, address, is_hopeful=is_hopeful)


def test_what_is_remembered_counts_as_far_as_it_is_believed() -> None:
    """And half of what lies a little beyond, where it is hoped for: or it would never be tried."""
    for capacity_blocks, expected, hoped in ((100, 40, 40), (30, 0, 20), (10, 0, 0)):
        fleet, address = remembering(capacity_blocks)
        assert cached(fleet, address, is_hopeful=False) == expected * BLOCK_TOKENS
        assert cached(fleet, address, is_hopeful=True) == hoped * BLOCK_TOKENS


def test_the_last_token_is_always_read() -> None:
    fleet, address = remembering(100)
    assert cached(fleet, address, is_hopeful=False, prompt_tokens=1000) == 999


def test_an_embedding_finds_nothing() -> None:
    fleet, address = remembering(100)
    assert cached(fleet, address, is_hopeful=True, kind=Kind.EMBEDDING) == 0
