"""One task as looks showed it, and when its first token must have come.

While llama-server reads a prompt, /slots counts its tokens by whole batches (2,048 unless set
otherwise): most prompts stand at 0 until they are read. Once the answer has begun its count
moves with every token. So the first token is found by going back from there:

    first token at    seen_at - (decoded - 1/2) * pace

half a token, since between two of them nothing moves. The pace is this very task's own, once it
was seen twice with some tokens in between. Never before the last look that saw none.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from extproc.core.observation import SlotReading

OWN_PACE_TOKENS = 8
"""Between two looks, from which on a task's own pace is better than its server's."""
PACE_ERROR = 0.15
"""How far the pace of a task may be from what it was at its beginning."""


class FirstToken(NamedTuple):
    """When the first token came, in monotonic seconds, give or take `slack_s`."""

    at: float
    slack_s: float
    is_own_pace: bool


class GenerationProgress:
    """Fed by looks, in their order. Every call is O(1). Times are monotonic seconds."""

    __slots__ = (
        "_first",
        "has_taught",
        "last_token",
        "processed_tokens",
        "reading_since",
        "reading_until",
        "unseen_until",
        "whole_prompt_tokens",
    )

    def __init__(self, unseen_until: float, seen_at: float) -> None:
        """A task that the look before, at `unseen_until`, did not show."""
        self.unseen_until = unseen_until
        self.reading_since = seen_at
        """The first look at it."""
        self.reading_until = -inf
        """The beginning of the last look that saw it without any token."""
        self.whole_prompt_tokens: int | None = None
        self.processed_tokens: int | None = None
        """Of its prompt what was read so far, and not found in the cache."""
        self.has_taught = False
        self._first: tuple[float, int] | None = None
        self.last_token = (-inf, 0)
        """The last look that saw tokens: when it was answered, and how many it saw."""

    @property
    def has_token(self) -> bool:
        """Whether the first token was seen to be out."""
        return self._first is not None

    @property
    def token_seen_at(self) -> float:
        """When the first look that saw a token was answered; infinity before."""
        return inf if self._first is None else self._first[0]

    @property
    def has_own_pace(self) -> bool:
        """Whether its own pace is known, and with it when its first token came."""
        return self._first is not None and self.last_token[1] - self._first[1] >= OWN_PACE_TOKENS

    def seen(self, reading: SlotReading, began_at: float, answered_at: float) -> None:
        """Another look at it is in."""
        self.whole_prompt_tokens = reading.whole_prompt_tokens
        self.processed_tokens = reading.processed_tokens
        decoded = reading.decoded_tokens or 0
        if not decoded:
            self.reading_until = began_at
            return
        self.last_token = (answered_at, decoded)
        if self._first is None:
            self._first = self.last_token

    def first_token(self, token_s: float) -> FirstToken | None:
        """When it came; None while none was seen. `token_s` is the server's pace, in seconds
        for each token."""
        if self._first is None:
            return None
        at, decoded = self._first
        last_at, last_decoded = self.last_token
        is_own_pace = self.has_own_pace
        if is_own_pace:
            token_s = (last_at - at) / (last_decoded - decoded)
        back_s = (decoded - 0.5) * token_s
        return FirstToken(
            max(self.reading_until, at - back_s), PACE_ERROR * back_s + token_s, is_own_pace
        )
