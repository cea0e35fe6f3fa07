"""What one request takes of a context that several slots share, in tokens.

It holds its prompt from its start, and one token more for each that it generates, until it ends.
How many those will be is a distribution, or unknown; then it may be all that is allowed.
"""

from collections.abc import Iterable
from math import inf
from typing import Final

from extproc.core.prediction.answer_lengths import AnswerLengths, LengthDistribution
from extproc.core.prediction.prompt_sizes import PromptSizes
from extproc.core.prediction.size_features import features_of
from extproc.core.request import Kind, Request, ResolvedRequest


class TokenDemand:
    """`prompt_tokens` at most, and at most `answer_tokens` for each of `answers` answers at once,
    of whose lengths `lengths` is the distribution (None: not known; then they hardly exceed
    `guess_tokens`). `prompts` are the tokens that the prompt may have, with their chances, the most
    first (empty: not known). It begins at `begins_at`, in monotonic seconds."""

    __slots__ = (
        "answer_tokens",
        "answers",
        "begins_at",
        "guess_tokens",
        "lengths",
        "prompt_tokens",
        "prompts",
    )

    def __init__(
        self,
        prompt_tokens: float,
        answer_tokens: float,
        lengths: LengthDistribution | None = None,
        answers: int = 1,
        prompts: Iterable[tuple[float, float]] = (),
        guess_tokens: float = inf,
        begins_at: float = 0.0,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.answer_tokens = answer_tokens
        self.lengths = lengths
        self.answers = answers
        self.prompts = prompts
        self.guess_tokens = guess_tokens
        self.begins_at = begins_at


UNKNOWN: Final = TokenDemand(inf, inf)
"""That of a request of which nothing is known: the whole context."""


class TokenDemands:
    """What requests are expected to take, by what was learned. Every call is O(1)."""

    def __init__(self, lengths: AnswerLengths, prompts: PromptSizes) -> None:
        self._lengths = lengths
        self._prompts = prompts
        self._known_for: tuple[ResolvedRequest, Request, float] | None = None
        self._known = UNKNOWN

    def of(self, resolved: ResolvedRequest, request: Request, now: float) -> TokenDemand:
        """The demand of a request that is to begin. A pick asks twice for the same one."""
        known = self._known_for
        if known is None or known[0] is not resolved or known[1] is not request or known[2] != now:
            self._known_for = (resolved, request, now)
            self._known = self.of_model(
                resolved.constraints.model, resolved.objective.name, request, now
            )
        return self._known

    def of_model(
        self, model: str | None, objective: str, request: Request, begins_at: float
    ) -> TokenDemand:
        """The same for a request for that model, of that objective."""
        prompt_tokens, prompts = self._prompts.most(model or "", request)
        if request.kind is not Kind.GENERATION:
            return TokenDemand(prompt_tokens, 0.0, begins_at=begins_at)
        most = inf if request.max_tokens is None else float(request.max_tokens)
        features = features_of(request, model, objective)
        lengths = self._lengths.of(features)
        guess = self._lengths.guess(features) if lengths is None else inf
        answers = request.weight_slots
        return TokenDemand(prompt_tokens, most, lengths, answers, prompts, guess, begins_at)

    def of_foreign(
        self, model: str, held_tokens: float, left_tokens: float | None, seen_at: float
    ) -> TokenDemand:
        """The demand of a request of others that held this much, and might generate as many more,
        when it was seen."""
        most = inf if left_tokens is None else left_tokens
        lengths = self._lengths.of_model(model)
        guess = self._lengths.guess_of_model(model) if lengths is None else inf
        return TokenDemand(held_tokens, most, lengths, guess_tokens=guess, begins_at=seen_at)


class TokenClaim:
    """One request that runs in a context of `capacity_tokens`: its demand, how far scrapes have
    seen it come, and what it may have generated since then."""

    __slots__ = (
        "answer_tokens",
        "decoded_tokens",
        "demand",
        "generated_tokens",
        "growth_tokens",
        "held_tokens",
        "left_tokens",
        "most_tokens",
        "prompt_tokens",
        "seen_at",
        "unseen_tokens",
    )

    def __init__(
        self,
        demand: TokenDemand,
        capacity_tokens: float,
        decoded_tokens: float = 0.0,
        prompt_tokens: float | None = None,
    ) -> None:
        """Its prompt is as long as the demand's, unless it has other `prompt_tokens`."""
        # Numbers that follow from others are kept, too: each pick reads all of them, of all that
        # run. `generated_tokens` are what each of its answers has now, by what was seen and the
        # time that has passed; `held_tokens` what it holds now, and `most_tokens` at most before it
        # ends. `left_tokens` are how many more than were seen each of its answers may get at most,
        # so that it ends when they are generated at the latest; `growth_tokens` how many more than
        # it holds now.
        self.demand = demand
        self.seen_at = demand.begins_at
        """When it had as many tokens as are known."""
        if prompt_tokens is None:
            prompt_tokens = demand.prompt_tokens
        self.seen(prompt_tokens, decoded_tokens, capacity_tokens)

    def seen(self, prompt_tokens: float, decoded_tokens: float, capacity_tokens: float) -> None:
        """It has a prompt of that length, and has generated as many tokens for each answer."""
        demand = self.demand
        if prompt_tokens > capacity_tokens:
            prompt_tokens = capacity_tokens
        answer_tokens, guess = demand.answer_tokens, demand.guess_tokens
        if decoded_tokens < guess < answer_tokens:
            answer_tokens = guess
        if answer_tokens > capacity_tokens - prompt_tokens:
            answer_tokens = capacity_tokens - prompt_tokens
        left_tokens = answer_tokens - decoded_tokens if answer_tokens > decoded_tokens else 0.0
        self.prompt_tokens = prompt_tokens
        self.decoded_tokens = decoded_tokens
        self.answer_tokens = answer_tokens
        """At most, for each answer: the context ends too. One that exceeded a guess may go on until
        there."""
        self.left_tokens = left_tokens
        self.most_tokens = prompt_tokens + demand.answers * (decoded_tokens + left_tokens)
        self._generate(0.0)

    def pass_time(self, now: float, token_s: float) -> None:
        """It goes on at a speed of `token_s` seconds for each token, infinite if that is not
        known."""
        unseen_tokens = min(self.left_tokens, max(0.0, now - self.seen_at) / token_s)
        if unseen_tokens != self.unseen_tokens:
            self._generate(unseen_tokens)

    def _generate(self, unseen_tokens: float) -> None:
        generated_tokens = self.decoded_tokens + unseen_tokens
        self.unseen_tokens = unseen_tokens
        self.generated_tokens = generated_tokens
        self.held_tokens = self.prompt_tokens + self.demand.answers * generated_tokens
        self.growth_tokens = self.left_tokens - unseen_tokens

    def likely_left(self, so_far: float, chance: float) -> float:
        """How many more tokens each of its answers hardly gets: with this chance any of them gets
        more. The inverse of `chance_from`, with `chance_so_far`."""
        lengths, growth_tokens = self.demand.lengths, self.growth_tokens
        if lengths is None:
            return growth_tokens
        answers = self.demand.answers
        of_each = chance if answers == 1 else 1.0 - (1.0 - chance) ** (1.0 / answers)
        most = lengths.length_beyond(of_each * so_far) - self.generated_tokens
        if most >= growth_tokens:
            return growth_tokens
        return max(0.0, most)

    def chance_beyond(self, tokens: float) -> float:
        """The chance that it still runs after this many more tokens."""
        return self.chance_from(self.chance_so_far(), tokens)

    def chance_so_far(self) -> float:
        """The chance that an answer became as long as its are, more than 0."""
        lengths = self.demand.lengths
        if lengths is None or not self.generated_tokens:
            return 1.0
        return lengths.survival(self.generated_tokens)

    def chance_from(self, so_far: float, tokens: float) -> float:
        """`chance_beyond`, with `chance_so_far`."""
        if tokens > self.left_tokens:
            return 0.0
        lengths = self.demand.lengths
        if lengths is None:
            return 1.0
        chance = min(1.0, lengths.survival(self.generated_tokens + tokens) / so_far)
        answers = self.demand.answers
        return chance if answers == 1 else float(1.0 - (1.0 - chance) ** answers)
