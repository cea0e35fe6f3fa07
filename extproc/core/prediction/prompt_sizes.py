"""How many tokens prompts really have, for each token that their length suggests, by model.

Texts differ: English has about four characters to a token, Chinese one, indented code many. So
there are two numbers: the mean, to choose an endpoint, and a lower bound, to reject a request. The
bound is half of the least ratio that was seen lately.
"""

from collections import OrderedDict
from typing import Final

from extproc.core.prediction.statistics import DecayingMean, is_usable
from extproc.core.recent import remember

MAX_MODELS: Final = 256
UNKNOWN_LEAST: Final = 0.25
"""Sixteen characters to a token, before a prompt of the model was seen."""
MARGIN: Final = 0.5
LEAST_GROWTH: Final = 1.005
"""By which the least ratio grows with each prompt: it is forgotten within some hundred."""
LEAST_SAMPLE_TOKENS: Final = 100
"""Of shorter prompts the chat template is a large part."""
PRIOR_WEIGHT: Final = 2.0
ALL: Final = ""
"""Of requests that name no model."""


class _Ratio:
    """Real tokens for each estimated one."""

    __slots__ = ("least", "mean")

    def __init__(self) -> None:
        self.mean = DecayingMean()
        self.least: float | None = None

    def add(self, ratio: float) -> None:
        self.mean.add(ratio)
        least = ratio if self.least is None else self.least * LEAST_GROWTH
        self.least = min(least, ratio)


class PromptSizes:
    """Every call is O(1)."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[str, _Ratio] = OrderedDict()

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
