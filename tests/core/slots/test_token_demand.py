"""Claims about extproc/core/slots/token_demand.py."""

from __future__ import annotations

from math import inf

import pytest

from extproc.core.constraints import Constraints
from extproc.core.prediction.answer_lengths import (
    LEAST_OF_MODEL,
    AnswerLengths,
    LengthDistribution,
)
from extproc.core.prediction.prompt_sizes import TEMPLATE_TOKENS, PromptSizes
from extproc.core.prediction.size_features import features_of
from extproc.core.request import Kind, Request, ResolvedRequest
from extproc.core.slots.token_demand import TokenClaim, TokenDemand, TokenDemands
from extproc.core.slots.token_pool import TokenPool

RESOLVED = ResolvedRequest(constraints=Constraints(model="m"))


def asked(**more: object) -> Request:
    plain: dict[str, object] = {"prompt_tokens": 100, "prompt_chars": 400}
    return Request(id="r", timeout_s=1.0, **(plain | more))  # type: ignore[arg-type]


def test_a_demand_before_anything_is_known() -> None:
    """One token for each character of the prompt; an answer up to `max_tokens`, or without end."""
    demands = TokenDemands(AnswerLengths(), PromptSizes())
    demand = demands.of(RESOLVED, asked(), 0.0)
    assert (demand.prompt_tokens, demand.answer_tokens) == (400 + TEMPLATE_TOKENS, inf)
    assert demand.lengths is None
    assert demands.of(RESOLVED, asked(max_tokens=50), 0.0).answer_tokens == 50
    assert demands.of(RESOLVED, asked(kind=Kind.EMBEDDING, max_tokens=50), 0.0).answer_tokens == 0.0


@pytest.mark.parametrize("request_", [asked(prompt_tokens=None), asked(prompt_chars=0)])
def test_a_prompt_that_is_not_all_text_is_unknown(request_: Request) -> None:
    """Tools and images add tokens that no text shows: the whole context may be needed, until one of
    the kind was seen."""
    prompts = PromptSizes()
    demands = TokenDemands(AnswerLengths(), prompts)
    assert demands.of(RESOLVED, request_, 0.0).prompt_tokens == inf
    for _ in range(100):
        prompts.record_most("m", request_, 900)
    assert 900 <= demands.of(RESOLVED, request_, 1.0).prompt_tokens < 1000


def test_demands_use_what_was_learned() -> None:
    """The lengths are those of the model, also for foreign requests."""
    lengths = AnswerLengths()
    for _ in range(LEAST_OF_MODEL):
        lengths.add(features_of(asked(), "m", ""), 20.0, is_complete=True)
    demands = TokenDemands(lengths, PromptSizes())
    foreign = demands.of_foreign("m", 300.0, None, 0.0)
    own = demands.of(RESOLVED, asked(), 0.0).lengths
    assert own is lengths.of(features_of(asked(), "m", "")) is not None
    assert foreign.lengths is lengths.of_model("m") is not None
    assert (foreign.prompt_tokens, foreign.answer_tokens) == (300.0, inf)
    assert demands.of_foreign("m", 300.0, 7.0, 0.0).answer_tokens == 7.0


def test_few_answers_make_a_guess() -> None:
    """A request is taken to end there. One that has not may go on to the end of the context."""
    lengths = AnswerLengths()
    for _ in range(9):
        lengths.add(features_of(asked(), "m", ""), 20.0, is_complete=True)
    demands = TokenDemands(lengths, PromptSizes())
    guess = lengths.guess_of_model("m")
    for demand in (demands.of(RESOLVED, asked(), 0.0), demands.of_foreign("m", 300.0, None, 0.0)):
        assert demand.lengths is None and demand.guess_tokens == guess < 10_000
        claim = TokenClaim(demand, 32_768)
        assert claim.left_tokens == guess
        claim.seen(300, guess + 1, 32_768)
        assert claim.most_tokens == 32_768
    assert TokenClaim(demands.of_foreign("m", 300.0, 7.0, 0.0), 32_768).left_tokens == 7.0


@pytest.mark.parametrize(
    ("context", "answers", "beside"),
    [
        *((8192, 0, 1), (8192, 9, 1), (8192, 25, 2)),
        *((32_768, 0, 1), (32_768, 5, 2), (32_768, 12, 4)),
        *((131_072, 1, 3), (131_072, 2, 4)),
    ],
)
def test_a_large_context_is_shared_after_few_answers(
    context: int, answers: int, beside: int
) -> None:
    lengths = AnswerLengths()
    for _ in range(answers):
        lengths.add(features_of(asked(), "m", ""), 200.0, is_complete=True)
    demands = TokenDemands(lengths, PromptSizes())
    pool = TokenPool(context, 4)
    while len(pool.claims) < 4 and pool.admits(demand := demands.of(RESOLVED, asked(), 0.0)):
        pool.add(len(pool.claims), demand)
    assert len(pool.claims) == beside


def test_a_claim_is_bounded_by_the_context() -> None:
    """No request holds more than the whole context, and an answer ends there."""
    claim = TokenClaim(TokenDemand(inf, inf), 512)
    assert (claim.held_tokens, claim.left_tokens, claim.most_tokens) == (512, 0, 512)
    claim.seen(200, 30, 512)
    assert (claim.held_tokens, claim.left_tokens, claim.most_tokens) == (230, 282, 512)
    bounded = TokenClaim(TokenDemand(100, 50, answers=2), 512)
    assert bounded.most_tokens == 200


def test_a_claim_goes_on_between_scrapes() -> None:
    """It holds what it may have generated since it was seen, and never more than it may hold. It
    still ends no sooner than by what was seen."""
    claim = TokenClaim(TokenDemand(100, 300, begins_at=10.0), 512)
    claim.pass_time(12.0, inf)
    assert claim.held_tokens == 100
    claim.pass_time(12.0, 0.01)
    assert (claim.held_tokens, claim.growth_tokens, claim.left_tokens) == (300, 100, 300)
    claim.pass_time(20.0, 0.01)
    assert claim.held_tokens == claim.most_tokens == 400
    claim.seen(100, 250, 512)
    assert (claim.held_tokens, claim.most_tokens) == (350, 400)
    claim.seen_at = 20.0
    claim.pass_time(20.25, 0.01)
    assert (claim.held_tokens, claim.left_tokens) == (375, 50)


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


@pytest.mark.parametrize("answers", [1, 3])
@pytest.mark.parametrize("decoded", [0.0, 700.0])
def test_what_is_likely_left_is_exceeded_with_that_chance(answers: int, decoded: float) -> None:
    lengths = LengthDistribution()
    for number in range(1, 900):
        lengths.add(float(number), is_complete=True)
    claim = TokenClaim(TokenDemand(10, 1e12, lengths, answers), 1e12, decoded)
    for chance in (0.9, 0.1, 0.003, 1e-6):
        left = claim.likely_left(claim.chance_so_far(), chance)
        assert claim.chance_beyond(left) == pytest.approx(chance, rel=1e-6)
    assert claim.likely_left(claim.chance_so_far(), 1.0) == 0.0
    assert claim.likely_left(claim.chance_so_far(), 1e-30) == claim.left_tokens
