"""How likely an answer is to become longer than some number of tokens.

`AnswerSizes` gives the mean of an answer, by which requests are ordered. Whether a shared context
suffices depends on the long answers instead, so this keeps the whole distribution, and for an
answer that has come so far, that of the rest: `survival(so far + more) / survival(so far)`.

It is the product-limit estimate of Kaplan and Meier (1958, "Nonparametric Estimation from
Incomplete Observations"), over buckets of equal ratio: of the answers that reached a bucket, the
share that ended in it. An answer whose client left has shown only that it was longer, and counts in
the buckets that it passed. Each bucket also has `PRIOR` answers that behave like a Pareto tail, so
beyond the longest answer that was seen the estimate falls like `tokens ** -TAIL`, and an answer of
which few are known is expected to be long.

Who allows more tokens gets longer answers, so the lengths are learned apart for each magnitude of
`max_tokens`, and for requests without it. All of a model together would make two answers that may
be long seem a hundred times less likely than they are.

Old answers lose weight, about `1 / (1 - DECAY)` of them count. Every call is O(buckets).
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from math import exp2, inf, log2
from typing import Final, TypeVar

from extproc.core.prediction.size_features import SizeFeatures
from extproc.core.recent import remember

FIRST_TOKENS: Final = 16.0
A_DOUBLING: Final = 4
"""Buckets for each doubling of the length, which are of equal width near 0."""
BUCKETS: Final = 17 * A_DOUBLING
"""Enough for two million tokens; longer answers count as that long."""
DECAY: Final = 0.999
TAIL: Final = 3.0
PRIOR: Final = 1.0
_PRIOR_ENDS: Final = PRIOR * (1.0 - 2.0 ** (-TAIL / A_DOUBLING))
LARGEST_WEIGHT: Final = 1e100
LEAST_OF_MODEL: Final = 30
"""With fewer answers of a model, with a bound of that magnitude, nothing is known of them: the same
mistake would be made about each request, so that their chances cannot be multiplied."""
GUESS_RISK: Final = 3e-3
"""The chance that an answer exceeds a guess by few answers: less than what a request may add to the
chance of an overflow (`token_pool.RISK`)."""
LEAST_LONGEST: Final = 256.0
"""A guess takes the longest of few answers to be at least this long: they may all be greetings."""
LEAST_OF_FLOW: Final = 100
"""With fewer answers of a flow it is taken to be like others of its model."""
MAX_DISTRIBUTIONS: Final = 512
MAX_CARRIED: Final = 16
"""The models whose distributions another process gets, each with at most `BOUNDS`; about 1 kB
each."""
BOUNDS: Final = 4
_OF_BOUND: Final = "\n"
"""Between a model's name and the magnitude of a bound, for another process."""
BoundKey = tuple[str, int]
"""A model and the magnitude of a bound."""
FlowKey = tuple[str, str, str, str, str, int]
"""The same with what a flow has beside its model."""
K = TypeVar("K")

PlainLengths = tuple[tuple[str, tuple[float, ...]], ...]
"""The distributions of models by their names, and by name and bound."""


class LengthDistribution:
    """The lengths of similar answers."""

    __slots__ = ("_ended", "_reached", "_rising", "_survival", "_weight", "answers")

    def __init__(self) -> None:
        self._ended = [0.0] * BUCKETS
        self._reached = [0.0] * BUCKETS
        self._weight = 1.0
        """Of the last answer; each weighs more than the one before, so none need be touched."""
        self._survival: list[float] = []
        self._rising: list[float] = []
        """The same from its end, for searches."""
        self.answers = 0

    def add(self, tokens: float, *, is_complete: bool) -> None:
        """An answer has ended after this many tokens, or was cut off there."""
        self.answers += 1
        self._survival, self._rising = [], []
        self._weight /= DECAY
        bucket = min(BUCKETS - 1, int(_place(tokens)))
        reached, weight = self._reached, self._weight
        for passed in range(bucket):
            reached[passed] += weight
        if is_complete:
            reached[bucket] += weight
            self._ended[bucket] += weight
        if weight > LARGEST_WEIGHT:
            self._ended = [each / weight for each in self._ended]
            self._reached = [each / weight for each in reached]
            self._weight = 1.0

    def as_plain(self) -> tuple[float, ...]:
        """What it knows, for `restore`: the answers, and what ended in and reached each bucket."""
        counts = (*self._ended, *self._reached)
        return (float(self.answers), *(each / self._weight for each in counts))

    def restore(self, plain: Sequence[float]) -> None:
        """Know what another one knew. Raises `ValueError` for what is not from `as_plain`."""
        if len(plain) != 1 + 2 * BUCKETS or not all(0.0 <= each < inf for each in plain):
            raise ValueError("this is no distribution of lengths")
        self.answers, self._weight = int(plain[0]), 1.0
        self._survival, self._rising = [], []
        self._ended, self._reached = list(plain[1 : 1 + BUCKETS]), list(plain[1 + BUCKETS :])

    def survival(self, tokens: float) -> float:
        """The chance that an answer is longer than this, more than 0. Between the buckets' ends it
        is taken to fall in a line, which is never too little where it falls ever slower."""
        if tokens <= 0.0:
            return 1.0
        table = self._survival
        if not table:
            table = self._survival = self._tabulate()
        place = _place(tokens)
        bucket = int(place)
        if bucket >= BUCKETS:
            return table[BUCKETS]
        part = place - bucket
        return table[bucket] * (1.0 - part) + table[bucket + 1] * part

    def length_beyond(self, chance: float) -> float:
        """The length that an answer exceeds with this chance, infinite if none is known: the
        inverse of `survival`."""
        if not self._rising:
            self._rising = (self._survival or self._tabulate())[::-1]
        rising = self._rising
        less = bisect_right(rising, chance)
        if not 0 < less < len(rising):
            return 0.0 if less else inf
        part = (rising[less] - chance) / (rising[less] - rising[less - 1])
        return _length(len(rising) - 1 - less + part)

    def guess(self) -> float:
        """A length that an answer exceeds with a chance of at most `GUESS_RISK`, by few answers;
        infinite without any.

        The longest of `n + 1` answers is the last one with a chance of 1 in `n + 1`. How much
        longer it then is, is taken to follow a Pareto tail of exponent 1, far heavier than `TAIL`.
        """
        if not self.answers:
            return inf
        last = max(index for index, reached in enumerate((1.0, *self._reached)) if reached)
        return max(_length(last), LEAST_LONGEST) / (GUESS_RISK * (self.answers + 1))

    def _tabulate(self) -> list[float]:
        left = 1.0
        table = [left]
        weight = self._weight
        for ended, reached in zip(self._ended, self._reached, strict=True):
            left *= 1.0 - (ended / weight + _PRIOR_ENDS) / (reached / weight + PRIOR)
            table.append(left)
        return table


def _place(tokens: float) -> float:
    """Where a length is among the buckets."""
    return A_DOUBLING * log2(1.0 + max(0.0, tokens) / FIRST_TOKENS)


def _length(place: float) -> float:
    """The inverse of `_place`."""
    return FIRST_TOKENS * (exp2(place / A_DOUBLING) - 1.0)


class AnswerLengths:
    """The distributions by model and bound, and by flow and bound where enough of its answers are
    known."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, LengthDistribution] = OrderedDict()
        self._bounds: OrderedDict[BoundKey, LengthDistribution] = OrderedDict()
        self._flows: OrderedDict[FlowKey, LengthDistribution] = OrderedDict()

    def add(self, features: SizeFeatures, tokens: float, *, is_complete: bool) -> None:
        """An answer has ended, or was cut off by its client. O(buckets)."""
        known = (
            remember(self._models, features.model, LengthDistribution, MAX_DISTRIBUTIONS),
            remember(self._bounds, _bound_of(features), LengthDistribution, MAX_DISTRIBUTIONS),
            remember(self._flows, _flow_of(features), LengthDistribution, MAX_DISTRIBUTIONS),
        )
        for distribution in known:
            distribution.add(tokens, is_complete=is_complete)

    def as_plain(self) -> PlainLengths:
        """The distributions of the models that were used last, for `restore`. O(buckets)."""
        models = islice(reversed(self._models.items()), MAX_CARRIED)
        bounds = islice(reversed(self._bounds.items()), MAX_CARRIED * BOUNDS)
        named = ((f"{model}{_OF_BOUND}{bound}", known) for (model, bound), known in bounds)
        return tuple((name, known.as_plain()) for name, known in (*models, *named))

    def restore(self, plain: PlainLengths) -> None:
        """Know of each model what another process knew, if that was more. Raises `ValueError` or
        `TypeError` for what is not from `as_plain`."""
        for name, values in reversed(plain[: MAX_CARRIED * (1 + BOUNDS)]):
            carried = LengthDistribution()
            carried.restore(values)
            model, is_of_bound, bound = name.rpartition(_OF_BOUND)
            if is_of_bound:
                _restore(self._bounds, (model, int(bound)), carried)
            else:
                _restore(self._models, name, carried)

    def of(self, features: SizeFeatures) -> LengthDistribution | None:
        """The lengths of such answers; None while too little is known. O(1)."""
        flow = self._flows.get(_flow_of(features))
        if flow is not None and flow.answers >= LEAST_OF_FLOW:
            return flow
        known = self._bounds.get(_bound_of(features))
        return known if known is not None and known.answers >= LEAST_OF_MODEL else None

    def guess(self, features: SizeFeatures) -> float:
        """What such an answer hardly exceeds, in tokens, while `of` knows too little; infinite
        before the first answer. O(buckets)."""
        known = self._bounds.get(_bound_of(features))
        return inf if known is None else known.guess()

    def guess_of_model(self, model: str) -> float:
        """The same for any answer of a model, while `of_model` knows too little."""
        known = self._models.get(model)
        return inf if known is None else known.guess()

    def of_model(self, model: str) -> LengthDistribution | None:
        """The lengths of a model's answers; None while too little is known. O(1)."""
        known = self._models.get(model)
        return known if known is not None and known.answers >= LEAST_OF_MODEL else None


def _restore(
    place: OrderedDict[K, LengthDistribution], key: K, carried: LengthDistribution
) -> None:
    if remember(place, key, LengthDistribution, MAX_DISTRIBUTIONS).answers < carried.answers:
        place[key] = carried


def _flow_of(features: SizeFeatures) -> FlowKey:
    return features.similar[:6]


def _bound_of(features: SizeFeatures) -> BoundKey:
    return features.similar[0], features.similar[5]
