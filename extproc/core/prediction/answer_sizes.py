"""How long answers are, learned from answers that ended: a distribution for each request.

    ln(OFFSET + tokens) = center of the model + effect of each feature + residual

The center, the effects and the residuals are decaying means. An effect is the mean residual that
the more general features leave at the requests with this feature, shrunk towards 0 while there are
few of them. A kind of feature that predicts nothing must not add noise: each effect counts by the
share of its kind, which is the regression of the residuals on the effects that were predicted
before these were known, and 0 unless that exceeds `CHANCE` standard errors (see
`ModelSizes.score`). So without a signal all estimates agree, and with a clear one the share is
about 1. The residuals of a group of requests are its distribution around the estimate, so the
estimate is a distribution: `expected_tokens` is its mean, cut at `max_tokens`.

"Tokens" are what a request held its slot for beyond its expected prefill, in tokens at its server's
rate. That is known of every request from its lease, whether its tokens were counted or not, and
holds whatever the features cannot explain, such as images.

A bound that is not kept buys nothing: where answers exceed `max_tokens` by far, that bound is
stretched for the requests of the same flow.

Sources: shortest expected processing time minimises the mean wait of jobs that are not preempted
(Rothkopf 1966, "Scheduling with random service times"); the Gittins index of such a job before it
begins is one over its mean (Gittins 1979; Aalto, Ayesta, Righter 2009), so the mean is the index.
Learned orders for language models: Fu et al. 2024, "Efficient LLM Scheduling by Learning to Rank";
Qiu et al. 2024, "Efficient Interactive LLM Serving with Proxy Model-based Sequence Length
Prediction". Random-effects models fitted online: Zhang et al. 2016, "GLMix". The share of a kind:
Breiman 1995, "Better Subset Regression Using the Nonnegative Garrote".
"""

from collections import OrderedDict
from dataclasses import dataclass
from math import exp, inf, log
from typing import Final

from extproc.core.prediction.residual_shape import ResidualShape
from extproc.core.prediction.size_features import (
    BEGINNING,
    DEPTHS,
    KINDS,
    FeatureKey,
    FlowName,
    SimilarKey,
    SizeFeatures,
)
from extproc.core.prediction.statistics import DecayingHistogram, DecayingMean
from extproc.core.recent import remember

OFFSET: Final = 8.0
"""Added to all lengths before the logarithm: a difference of few tokens is none in seconds."""
MAX_EFFECTS: Final = 16_384
MAX_GROUPS: Final = 512
MAX_MODELS: Final = 128
MAX_FLOWS: Final = 1024
MAX_SIMILAR: Final = 1024
"""Bounds of the memory, of which the least recently learned are forgotten: about 5 MB together."""
MIN_SAMPLES: Final = 50.0
"""With fewer samples of a model, or of a group, nothing is known of it."""
MAX_LEARNED_A_SECOND: Final = 50
"""A sample of all requests shows as much as all of them."""
ERROR_STEP: Final = 0.05
"""The width of a bucket of the errors that are reported, in natural logarithms."""
PRIOR: Final = 3.0
"""Effects begin as if there had been this many samples without any."""
EXCESS = 2.0
EXCESS_TOKENS = 64.0
"""An answer that is longer than its bound by both this factor and this number was not bounded:
rates are estimates, but not that bad."""
CHANCE: Final = 2.0
"""How many of its standard errors a regression must exceed before effects count."""


class Effect:
    """The decaying mean of the residuals at one feature, shrunk towards 0."""

    __slots__ = ("_sum", "_weight", "value")

    DECAY: Final = 0.985

    def __init__(self) -> None:
        self._sum = 0.0
        self._weight = 0.0
        self.value = 0.0

    def add(self, residual: float) -> None:
        self._sum = self._sum * self.DECAY + residual
        self._weight = self._weight * self.DECAY + 1.0
        self.value = self._sum / (self._weight + PRIOR)


class ModelSizes:
    """What is common to all requests for one model."""

    __slots__ = ("_gains", "_squares", "_variances", "center", "errors", "residuals", "shares")

    DECAY: Final = 0.998
    TRUST = 0.5
    """The weight of the assumption that effects are right, in squared logarithms."""

    def __init__(self) -> None:
        self.center = DecayingMean(self.DECAY)
        self.residuals = ResidualShape(self.DECAY)
        self.errors = DecayingHistogram(self.DECAY, 200)
        """Factors between estimates and outcomes, as logarithms in steps of `ERROR_STEP`."""
        self._gains = [self.TRUST] * KINDS
        self._squares = [self.TRUST] * KINDS
        self._variances = [DecayingMean(self.DECAY) for _ in range(KINDS)]
        """Of the residuals that each kind was to predict."""
        self.shares = [0.0] * KINDS
        """By which share effects of each kind count, from 0 to 1."""

    def score(self, kind: int, effect: float, residual: float) -> None:
        """An effect was predicted where this residual came out.

        The share is `slope * (1 - (CHANCE * error / slope)^2)`, at least 0 (nonnegative garrote),
        with the standard error that the slope has if the effects of this kind predict nothing:
        `sqrt(variance / (2 * squares))` for sums that decay, as their squares decay twice as fast.
        With fewer samples it is up to 1.4 times as much, so that a signal counts soon.
        """
        forgotten = 1.0 - self.DECAY
        gain, square = self._gains[kind], self._squares[kind]
        gain += forgotten * (self.TRUST - gain) + effect * residual
        square += forgotten * (self.TRUST - square) + effect * effect
        self._gains[kind], self._squares[kind] = gain, square
        variance = self._variances[kind]
        variance.add(residual * residual)
        share = 0.0
        if gain > 0.0:
            slope, error2 = gain / square, variance.value(0.0) / (2.0 * square)
            share = min(1.0, slope) * (1.0 - CHANCE * CHANCE * error2 / (slope * slope))
        self.shares[kind] = max(0.0, share)


@dataclass(frozen=True, slots=True)
class Similar:
    """What is known of the requests that share all general features; a cache of look-ups. `effects`
    have their kinds, `residuals` are those of the group."""

    model: ModelSizes
    effects: list[tuple[int, Effect]]
    residuals: ResidualShape | None


class AnswerSizes:
    """The lengths of answers. `expected_tokens` and `learn` are O(features), at most 12."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, ModelSizes] = OrderedDict()
        self._effects: OrderedDict[FeatureKey, Effect] = OrderedDict()
        self._groups: OrderedDict[FeatureKey, ResidualShape] = OrderedDict()
        self._excess: OrderedDict[FlowName, DecayingMean] = OrderedDict()
        self._similar: dict[SimilarKey, Similar] = {}
        """Forgotten as soon as there is anything that was not found."""
        self._learned = 0
        self._learned_since = -inf

    def __len__(self) -> int:
        """The number of features that are remembered."""
        return len(self._effects)

    def wants_sample(self, now: float) -> bool:
        """Whether one more request should be learned from in this second."""
        if now - self._learned_since >= 1.0:
            self._learned_since, self._learned = now, 0
        self._learned += 1
        return self._learned <= MAX_LEARNED_A_SECOND

    def expected_tokens(self, features: SizeFeatures) -> float | None:
        """The expected length of each answer, in tokens; None while too little is known."""
        similar = self._similar.get(features.similar)
        if similar is None:
            similar = self._find_similar(features)
            if similar is None:
                return None
        model = similar.model
        residuals = model.residuals
        if residuals.weight < MIN_SAMPLES:
            return None
        center, shares = model.center.value(0.0), model.shares
        for kind, effect in similar.effects:
            center += shares[kind] * effect.value
        center += self._effect_of_beginning(features, shares)
        of_group = similar.residuals
        if of_group is not None and of_group.weight >= MIN_SAMPLES:
            residuals = of_group
        return residuals.mean(exp(center), OFFSET, self._limit(features))

    def _find_similar(self, features: SizeFeatures) -> Similar | None:
        """What is known of such requests, None if nothing is known of their model."""
        model = self._models.get(features.model)
        if model is None:
            return None
        found = ((kind, self._effects.get(key)) for kind, key in features.general_keys)
        effects = [(kind, effect) for kind, effect in found if effect is not None]
        if len(self._similar) >= MAX_SIMILAR:
            self._similar.clear()
        similar = Similar(model, effects, self._groups.get(features.group))
        self._similar[features.similar] = similar
        return similar

    def _effect_of_beginning(self, features: SizeFeatures, shares: list[float]) -> float:
        """The effects of the prompt's beginnings together."""
        blocks, effects = features.blocks, self._effects
        total, kind = 0.0, BEGINNING
        for depth in DEPTHS:
            if depth > len(blocks):
                break
            share = shares[kind]
            kind += 1
            if share:
                effect = effects.get(blocks[depth - 1])
                if effect is None:
                    break  # deeper ones are not known either
                total += share * effect.value
        return total

    def learn(self, features: SizeFeatures, tokens: float) -> None:
        """An answer ended that took its slot for this number of tokens."""
        tokens = max(0.0, tokens)
        self._check_bound(features, tokens)
        model = remember(self._models, features.model, self._new_model, MAX_MODELS)
        size = log(OFFSET + tokens)
        residual = size - model.center.value(size)
        model.center.add(size)
        is_new = False
        for kind, key in features.keys:
            known = self._effects.get(key)
            effect = known or remember(self._effects, key, Effect, MAX_EFFECTS)
            if known is not None:
                self._effects.move_to_end(key)
            predicted = effect.value
            effect.add(residual)
            if known is None:
                if kind >= BEGINNING:
                    break  # one block deeper each time, so that unique prompts take one entry
                is_new = True
                continue
            model.score(kind, predicted, residual)
            residual -= model.shares[kind] * predicted
        if is_new:
            self._similar.clear()
            return  # what its features will explain is no residual
        model.residuals.add(residual)
        group = remember(self._groups, features.group, self._new_group, MAX_GROUPS)
        group.add(residual)

    def _new_model(self) -> ModelSizes:
        self._similar.clear()
        return ModelSizes()

    def _new_group(self) -> ResidualShape:
        self._similar.clear()
        return ResidualShape(ModelSizes.DECAY)

    def record_error(self, model: str, expected_s: float, used_s: float) -> None:
        """A request for that model used its slots for a time that was expected to be another."""
        known = self._models.get(model)
        if known is not None and expected_s > 0.0 and used_s > 0.0:
            known.errors.add(round(abs(log(used_s / expected_s)) / ERROR_STEP))

    def error_factors(self, share: float) -> dict[str, float]:
        """By model, the factor within which this share of the recent estimates were."""
        found = {}
        for name, model in self._models.items():
            bucket = model.errors.quantile(share)
            if bucket is not None:
                found[name] = exp(bucket * ERROR_STEP)
        return found

    def _limit(self, features: SizeFeatures) -> float:
        """The longest answer that the client's bound allows, as far as such bounds are kept."""
        if features.max_tokens is None:
            return inf
        excess = self._excess.get(features.flow)
        return features.max_tokens * (1.0 if excess is None else excess.value(1.0))

    def _check_bound(self, features: SizeFeatures, tokens: float) -> None:
        """Record whether an answer kept its client's bound."""
        bound = features.max_tokens
        if bound is None:
            return
        is_kept = tokens <= EXCESS * bound + EXCESS_TOKENS
        excess = self._excess.get(features.flow)
        if excess is None:
            if is_kept:
                return
            excess = remember(self._excess, features.flow, DecayingMean, MAX_FLOWS)
        excess.add(1.0 if is_kept else tokens / bound)
