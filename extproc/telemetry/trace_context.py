"""The W3C trace context: the trace of a request, and whether it is recorded."""

from dataclasses import dataclass
from random import Random
from typing import Final

SAMPLED: Final = 0x01
_LENGTH: Final = 55  # of version 00: 2 + 1 + 32 + 1 + 16 + 1 + 2
_HEX: Final = frozenset("0123456789abcdef")
_RATIO_BITS: Final = 56
"""The trace id's lowest bits that a ratio is compared with; the standard calls them random."""


@dataclass(frozen=True, slots=True)
class TraceParent:
    """A span of another process that ours hang below; ids are lower-case hex."""

    trace_id: str
    span_id: str
    is_sampled: bool


def parse_trace_parent(text: str) -> TraceParent | None:
    """Read a `traceparent` header; None for an absent or malformed one, which counts as none.

    https://www.w3.org/TR/trace-context/: a later version may carry more after the flags.
    """
    if len(text) < _LENGTH or text[2] != "-" or text[35] != "-" or text[52] != "-":
        return None
    version, trace_id, span_id, flags = text[:2], text[3:35], text[36:52], text[53:55]
    if not _HEX.issuperset(version + trace_id + span_id + flags) or version == "ff":
        return None
    if len(text) > _LENGTH and (version == "00" or text[_LENGTH] != "-"):
        return None
    if not (int(trace_id, 16) and int(span_id, 16)):
        return None
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & SAMPLED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Which traces are recorded: a share of those begun here, and what callers decided.

    With `follows_parent` a caller's decision counts and `ratio` is only for traces that begin
    here; without it `ratio` is for all.
    """

    ratio: float = 1.0
    follows_parent: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.ratio <= 1.0:
            raise ValueError(f"the ratio must be between 0 and 1, not {self.ratio}")


class Sampler:
    """Decides for one request. Every process with the same ratio decides alike on a trace."""

    __slots__ = ("_bound", "_follows_parent", "_random")

    def __init__(self, sampling: Sampling, random: Random) -> None:
        self._bound = round(sampling.ratio * (1 << _RATIO_BITS))
        self._follows_parent = sampling.follows_parent
        self._random = random

    def decide(self, parent: TraceParent | None) -> str | None:
        """The trace id under which to record, or None to leave it."""
        if parent is not None:
            if self._follows_parent:
                return parent.trace_id if parent.is_sampled else None
            trace_id = parent.trace_id
            low_bits = int(trace_id[-_RATIO_BITS // 4 :], 16)
            return trace_id if low_bits < self._bound else None
        if self._bound == 0:
            return None
        number = self._random.getrandbits(128)
        if number & ((1 << _RATIO_BITS) - 1) >= self._bound:
            return None
        return f"{number:032x}"
