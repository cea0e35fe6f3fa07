"""Claims about extproc/core/slots/token_demand.py."""

from __future__ import annotations

from math import inf

import pytest

from extproc.core.constraints import Constraints
from extproc.core.prediction.answer_lengths import LEAST_OF_MODEL, AnswerLengths
from extproc.core.prediction.prompt_sizes import TEMPLATE_TOKENS, PromptSizes
from extproc.core.prediction.size_features import features_of
from extproc.core.request import Kind, Request, ResolvedRequest
from extproc.core.slots.token_demand import TokenClaim, TokenDemand, TokenDemands

RESOLVED = ResolvedRequest(constraints=Constraints(model="m"))


def asked(**more: object) -> Request:
    plain: dict[str, object] = {"prompt_tokens": 100, "prompt_chars": 400}
    return Request(id="r", timeout_s=1.0, **(plain | more))  # type: ignore[arg-type]


def test_a_demand_before_anything_is_known() -> None:
    """One token for each character of the prompt; an answer up to `max_tokens`, or without end."""
    demands = TokenDemands(AnswerLengths(), PromptSizes())
    demand = demands.of(RESOLVED, asked())
    assert (demand.prompt_tokens, demand.answer_tokens) == (400 + TEMPLATE_TOKENS, inf)
    assert demand.lengths is None
    assert demands.of(RESOLVED, asked(max_tokens=50)).answer_tokens == 50
    assert demands.of(RESOLVED, asked(kind=Kind.EMBEDDING, max_tokens=50)).answer_tokens == 0.0


@pytest.mark.parametrize("request_", [asked(prompt_tokens=None), asked(prompt_chars=0)])
def test_a_prompt_that_is_not_all_text_is_unknown(request_: Request) -> None:
    """Tools and images add tokens that no text shows: the whole context may be needed, until one of
    the kind was seen."""
    prompts = PromptSizes()
    demands = TokenDemands(AnswerLengths(), prompts)
    assert demands.of(RESOLVED, request_).prompt_tokens == inf
    for _ in range(100):
        prompts.record_most("m", request_, 900)
    assert 900 <= demands.of(RESOLVED, request_).prompt_tokens < 1000


def test_demands_use_what_was_learned() -> None:
    """The lengths are those of the model, also for foreign requests."""
    lengths = AnswerLengths()
    for _ in range(LEAST_OF_MODEL):
        lengths.add(features_of(asked(), "m", ""), 20.0, is_complete=True)
    demands = TokenDemands(lengths, PromptSizes())
    foreign = demands.of_foreign("m", 300.0, None)
    assert demands.of(RESOLVED, asked()).lengths is foreign.lengths is lengths.of_model("m")
    assert (foreign.prompt_tokens, foreign.answer_tokens) == (300.0, inf)
    assert demands.of_foreign("m", 300.0, 7.0).answer_tokens == 7.0


def test_a_claim_is_bounded_by_the_context() -> None:
    """No request holds more than the whole context, and an answer ends there."""
    claim = TokenClaim(TokenDemand(inf, inf), 512)
    assert (claim.held_tokens, claim.left_tokens, claim.most_tokens) == (512, 0, 512)
    claim.seen(200, 30, 512)
    assert (claim.held_tokens, claim.left_tokens, claim.most_tokens) == (230, 282, 512)
    bounded = TokenClaim(TokenDemand(100, 50, answers=2), 512)
    assert bounded.most_tokens == 200


def test_the_chance_that_a_request_still_runs() -> None:
    """Certain as long as nothing is known; else given that it has come so far; none beyond its
    end; and with several answers that of any."""
    assert TokenClaim(TokenDemand(100, 50), 512).chance_beyond(50) == 1.0
    assert TokenClaim(TokenDemand(100, 50), 512).chance_beyond(51) == 0.0
    lengths = AnswerLengths()
    features = features_of(asked(), "m", "")
    for index in range(200):
        lengths.add(features, 20.0 if index % 2 else 400.0, is_complete=True)
    known = lengths.of_model("m")
    new, late = (TokenClaim(TokenDemand(100, 1000, known), 2000, so_far) for so_far in (0, 100))
    assert new.chance_beyond(100) == pytest.approx(0.5, abs=0.05)
    assert late.chance_beyond(100) > 0.95
    pair = TokenClaim(TokenDemand(100, 1000, known, answers=2), 2000)
    assert pair.chance_beyond(100) == pytest.approx(0.75, abs=0.05)
