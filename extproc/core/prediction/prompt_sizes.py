"""How many tokens prompts really have, for each token that their length suggests, by model.

Texts differ: English has about four characters to a token, Chinese one, indented code many. So
there are three numbers: the mean, to choose an endpoint; a lower bound, to reject a request; and an
upper bound, to keep room in a context that several slots share. The lower bound is half of the
least ratio that was seen lately. The upper one is a little more than nearly all of them, of
requests of the same kind: tools and images are in no text.

What a chat template adds makes the ratios of short prompts others than those of long ones, which
may be rare. So the ratios of prompts of the same magnitude are a lower bound of the upper one, and
of what is longer than all that was seen each character counts as a token.
"""

from collections import OrderedDict
from collections.abc import Iterator
from math import ceil, exp, inf, log
from typing import Final

from extproc.core.prediction.statistics import DecayingHistogram, DecayingMean, is_usable
from extproc.core.recent import remember
from extproc.core.request import Request

MAX_MODELS: Final = 256
UNKNOWN_LEAST: Final = 0.25
"""Sixteen characters to a token, before a prompt of the model was seen."""
MARGIN: Final = 0.5
LEAST_GROWTH: Final = 1.005
"""By which the least ratio grows with each prompt, and the largest one shrinks: it is forgotten
within some hundred."""
LEAST_SAMPLE_TOKENS: Final = 100
"""Of shorter prompts the chat template is a large part."""
PRIOR_WEIGHT: Final = 2.0
ALL: Final = ""
"""Of requests that name no model."""
UNKNOWN_MOST: Final = 4.0
"""One character to a token, before a prompt of the kind was seen."""
TEMPLATE_TOKENS: Final = 64
"""Added to each estimate: what the chat template adds counts little in long prompts."""
MOST_SHARE: Final = 0.99
"""The share of the ratios that the upper bound is above."""
MOST_STEP: Final = 0.02
"""The width of their buckets, in natural logarithms."""
MOST_DOUBT: Final = 5.0
"""The upper bound is increased by a share of `1 / (1 + prompts / MOST_DOUBT)`: it was seen to hold
for that many prompts only."""
LEAST_DOUBT: Final = 0.05
ROUNDING: Final = 1e-9
PART_ENDS: Final = (0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.998, 1.0)
"""Where the parts of the distribution end, each of which counts as its largest ratio."""
RatioParts = tuple[tuple[float, float], ...]
"""Ratios and their shares, the largest one first."""


class Parts:
    """The tokens that a prompt may have with their chances, the most first. Each is computed when
    it is asked for: mostly the first one decides."""

    __slots__ = ("_estimated", "_known", "_least", "_ratios")

    def __init__(self, ratios: RatioParts, least: float, known: int, estimated: int) -> None:
        """By these ratios, but by no less than the `least`. Of a length like that of the first
        `known` of the `estimated` tokens prompts were seen."""
        self._ratios = ratios
        self._least = least
        self._known = known
        self._estimated = estimated

    def __iter__(self) -> Iterator[tuple[float, float]]:
        for ratio, share in self._ratios:
            yield _tokens(max(self._least, ratio), self._known, self._estimated), share


NO_PARTS: Final = Parts((), 0.0, 0, 0)
"""None of the kind was seen."""


def _tokens(ratio: float, known: int, estimated: int) -> float:
    return ratio * (known + TEMPLATE_TOKENS) + max(ratio, UNKNOWN_MOST) * (estimated - known)


class _Ratio:
    """Real tokens for each estimated one."""

    __slots__ = ("largest", "least", "mean")

    def __init__(self) -> None:
        self.mean = DecayingMean()
        self.least: float | None = None
        self.largest = 0.0

    def add(self, ratio: float) -> None:
        self.mean.add(ratio)
        least = ratio if self.least is None else self.least * LEAST_GROWTH
        self.least = min(least, ratio)
        self.largest = max(ratio, self.largest / LEAST_GROWTH)


class _Most:
    """The largest ratios of real tokens to estimated ones, of one kind of request."""

    __slots__ = ("_longest", "_magnitudes", "_ratios", "bound", "parts")

    def __init__(self) -> None:
        self._ratios = DecayingHistogram(decay=0.998, limit=1000)
        self._magnitudes: dict[int, _Ratio] = {}
        self._longest = 0
        self.bound = 0.0
        self.parts: RatioParts = ()

    def most(self, estimated: int) -> tuple[float, Parts]:
        """The tokens that a prompt has at the most which is estimated to be that long, and those
        that it may have."""
        bound, least = self.bound, 0.0
        alike = self._magnitudes.get(estimated.bit_length())
        if alike is not None:
            bound = max(bound, alike.largest * (1.0 + LEAST_DOUBT))
            least = alike.least or 0.0
        known = min(estimated, self._longest)
        return _tokens(bound, known, estimated), Parts(self.parts, least, known, estimated)

    def add(self, estimated: int, real_tokens: int) -> None:
        ratio = real_tokens / (estimated + TEMPLATE_TOKENS)
        self._longest = max(self._longest, estimated)
        self._magnitudes.setdefault(estimated.bit_length(), _Ratio()).add(ratio)
        self._ratios.add(ceil(log(ratio) / MOST_STEP))
        largest = self._ratios.quantile(MOST_SHARE)
        doubt = 1.0 / (1.0 + self._ratios.weight / MOST_DOUBT)
        at_least = max(LEAST_DOUBT, doubt)
        self.bound = exp(MOST_STEP * (largest or 0)) * (1.0 + at_least)
        parts: list[tuple[float, float]] = []
        reached = counted = 0.0
        for bucket, share in sorted(self._ratios.shares()):
            reached += share
            ends = [end for end in PART_ENDS if counted < end <= reached + ROUNDING]
            if ends:
                more = at_least if ends[-1] == PART_ENDS[-1] else doubt
                parts.append((exp(MOST_STEP * bucket) * (1.0 + more), ends[-1] - counted))
                counted = ends[-1]
        self.parts = tuple(reversed(parts))


class PromptSizes:
    """Every call is O(1), but for `record_most`, which is O(ratios that differ)."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[str, _Ratio] = OrderedDict()
        self._most: OrderedDict[tuple[str, str], _Most] = OrderedDict()

    def record(self, model: str, real_tokens: int, estimated_tokens: int) -> None:
        """The real length of a prompt became known."""
        if estimated_tokens < LEAST_SAMPLE_TOKENS or real_tokens <= 0:
            return
        ratio = real_tokens / estimated_tokens
        if not is_usable(ratio):
            return
        for name in {model, ALL}:
            remember(self._ratios, name, _Ratio, MAX_MODELS).add(ratio)

    def likely(self, model: str, estimated_tokens: int) -> float:
        """The tokens that a prompt is expected to have."""
        ratio = self._ratios.get(model) or self._ratios.get(ALL)
        return estimated_tokens * (1.0 if ratio is None else ratio.mean.value(1.0, PRIOR_WEIGHT))

    def at_least(self, model: str, estimated_tokens: int) -> float:
        """The tokens that a prompt of that text has at the least."""
        ratio = self._ratios.get(model) or self._ratios.get(ALL)
        least = UNKNOWN_LEAST if ratio is None or ratio.least is None else MARGIN * ratio.least
        return estimated_tokens * least

    def record_most(self, model: str, request: Request, real_tokens: int) -> None:
        """The real length of a request's prompt became known, whatever is in it: at least 1."""
        kind = remember(self._most, (model, request.traits), _Most, MAX_MODELS)
        kind.add(request.prompt_tokens or 0, real_tokens)

    def most(self, model: str, request: Request) -> tuple[float, Parts]:
        """The tokens that a request's prompt has at the most, infinity if that is not known; and
        those that it may have, with their chances, the most first, `NO_PARTS` if none of its kind
        was seen."""
        estimated = request.prompt_tokens
        kind = self._most.get((model, request.traits))
        if kind is not None:
            return kind.most(estimated or 0)
        if estimated is None or not request.prompt_chars:
            return inf, NO_PARTS  # there may be more in it than its text
        return UNKNOWN_MOST * estimated + TEMPLATE_TOKENS, NO_PARTS
