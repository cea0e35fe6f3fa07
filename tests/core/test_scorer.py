"""Claims about extproc/core/scorer.py."""

from __future__ import annotations

import pytest

from extproc.core.request import Request
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
