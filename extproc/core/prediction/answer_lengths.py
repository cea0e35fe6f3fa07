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

Old answers lose weight, about `1 / (1 - DECAY)` of them count. Every call is O(buckets).
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from math import inf, log2
from typing import Final

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
"""With fewer answers of a model nothing is known of it: the same mistake would be made about each
of its requests, so that their chances cannot be multiplied."""
LEAST_OF_FLOW: Final = 100
"""With fewer answers of a flow it is taken to be like others of its model."""
MAX_DISTRIBUTIONS: Final = 512
MAX_CARRIED: Final = 16
"""The models whose distributions another process gets, about 1 kB each."""

PlainLengths = tuple[tuple[str, tuple[float, ...]], ...]
"""The distributions of models by their names."""


class LengthDistribution:
    """The lengths of similar answers."""

    __slots__ = ("_ended", "_reached", "_survival", "_weight", "answers")

    def __init__(self) -> None:
        self._ended = [0.0] * BUCKETS
        self._reached = [0.0] * BUCKETS
        self._weight = 1.0
        """Of the last answer; each weighs more than the one before, so none need be touched."""
        self._survival: list[float] = []
        self.answers = 0

    def add(self, tokens: float, *, is_complete: bool) -> None:
        """An answer has ended after this many tokens, or was cut off there."""
        self.answers += 1
        self._survival = []
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
        self.answers, self._weight, self._survival = int(plain[0]), 1.0, []
        self._ended, self._reached = list(plain[1 : 1 + BUCKETS]), list(plain[1 + BUCKETS :])

    def survival(self, tokens: float) -> float:
        """The chance that an answer is longer than this, more than 0. Between the buckets' ends it
        is taken to fall in a line, which is never too little where it falls ever slower."""
        table = self._survival
        if not table:
            table = self._survival = self._tabulate()
        place = _place(tokens)
        bucket = int(place)
        if bucket >= BUCKETS:
            return table[BUCKETS]
        part = place - bucket
        return table[bucket] * (1.0 - part) + table[bucket + 1] * part

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


class AnswerLengths:
    """The distributions by model, and by flow where enough of its answers are known."""

    def __init__(self) -> None:
        self._models: OrderedDict[str, LengthDistribution] = OrderedDict()
        self._flows: OrderedDict[tuple[str, ...], LengthDistribution] = OrderedDict()

    def add(self, features: SizeFeatures, tokens: float, *, is_complete: bool) -> None:
        """An answer has ended, or was cut off by its client. O(buckets)."""
        known = (
            remember(self._models, features.model, LengthDistribution, MAX_DISTRIBUTIONS),
            remember(self._flows, _flow_of(features), LengthDistribution, MAX_DISTRIBUTIONS),
        )
        for distribution in known:
            distribution.add(tokens, is_complete=is_complete)

    def as_plain(self) -> PlainLengths:
        """The distributions of the models that were used last, for `restore`. O(buckets)."""
        recent = islice(reversed(self._models.items()), MAX_CARRIED)
        return tuple((name, known.as_plain()) for name, known in recent)

    def restore(self, plain: PlainLengths) -> None:
        """Know of each model what another process knew, if that was more. Raises `ValueError` or
        `TypeError` for what is not from `as_plain`."""
        for name, values in reversed(plain[:MAX_CARRIED]):
            carried = LengthDistribution()
            carried.restore(values)
            known = remember(self._models, name, LengthDistribution, MAX_DISTRIBUTIONS)
            if known.answers < carried.answers:
                self._models[name] = carried

    def of(self, features: SizeFeatures) -> LengthDistribution | None:
        """The lengths of such answers; None while too little is known. O(1)."""
        flow = self._flows.get(_flow_of(features))
        if flow is not None and flow.answers >= LEAST_OF_FLOW:
            return flow
        return self.of_model(features.model)

    def of_model(self, model: str) -> LengthDistribution | None:
        """The lengths of a model's answers; None while too little is known. O(1)."""
        known = self._models.get(model)
        return known if known is not None and known.answers >= LEAST_OF_MODEL else None


def _flow_of(features: SizeFeatures) -> tuple[str, ...]:
    return features.similar[:5]
