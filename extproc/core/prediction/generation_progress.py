"""The progress of one task as scrapes show it, and the time of its first token.

During the prefill, /slots counts tokens in whole batches (2,048 by default): most prompts show 0
until the prefill ends. Once the response has begun, the count changes with every token. So the time
of the first token is computed back from there:

    first token at    seen_at - (decoded - 1/2) * token_s

Half a token, because nothing changes between two tokens. `token_s` is the task's own, once two
scrapes saw it with some tokens in between. The result is never before the last scrape without any.
"""

from math import inf
from typing import NamedTuple

from extproc.core.exchange_record import SeenTokens
from extproc.core.observation import SlotReading

OWN_PACE_TOKENS = 8
"""With this many tokens between two scrapes, a task's own rate is better than its server's."""
PACE_ERROR = 0.15
"""How far the rate of a task may differ from its rate at the beginning."""


class FirstToken(NamedTuple):
    """The time of the first token, in monotonic seconds, with an error of `slack_s`."""

    at: float
    slack_s: float
    is_own_pace: bool


class GenerationProgress:
    """Updated by scrapes, in their order. Every call is O(1). Times are monotonic seconds."""

    __slots__ = (
        "_first",
        "is_recorded",
        "last_token",
        "prefill_since",
        "prefill_until",
        "processed_tokens",
        "unseen_until",
        "whole_prompt_tokens",
    )

    def __init__(self, unseen_until: float, seen_at: float) -> None:
        """A task that the previous scrape, at `unseen_until`, did not show."""
        self.unseen_until = unseen_until
        self.prefill_since = seen_at
        """The first scrape that saw it."""
        self.prefill_until = -inf
        """The beginning of the last scrape that saw it without any token."""
        self.whole_prompt_tokens: int | None = None
        self.processed_tokens: int | None = None
        """The tokens of its prompt that were processed so far, without cached ones."""
        self.is_recorded = False
        self._first: tuple[float, int] | None = None
        self.last_token = (-inf, 0)
        """The last scrape that saw tokens: when it was answered, and how many it saw."""

    @property
    def has_token(self) -> bool:
        """Whether a scrape saw its first token."""
        return self._first is not None

    @property
    def token_seen_at(self) -> float:
        """When the first scrape that saw a token was answered; infinity before."""
        return inf if self._first is None else self._first[0]

    @property
    def is_seen_once(self) -> bool:
        """Whether one scrape alone has seen tokens, so that another one would show its rate."""
        return self._first is not None and self._first == self.last_token

    @property
    def has_own_pace(self) -> bool:
        """Whether its own rate is known, and so the time of its first token."""
        return self._first is not None and self.last_token[1] - self._first[1] >= OWN_PACE_TOKENS

    def seen(self, reading: SlotReading, began_at: float, answered_at: float) -> None:
        """Apply another scrape."""
        self.whole_prompt_tokens = reading.whole_prompt_tokens
        self.processed_tokens = reading.processed_tokens
        decoded = reading.decoded_tokens or 0
        if not decoded:
            self.prefill_until = began_at
            return
        self.last_token = (answered_at, decoded)
        if self._first is None:
            self._first = self.last_token

    def seen_tokens(self) -> SeenTokens:
        """What was seen so far."""
        at, generated = self.last_token
        if at == -inf:  # its prompt is being processed
            at = max(self.prefill_until, self.prefill_since)
        return SeenTokens(self.whole_prompt_tokens, self.processed_tokens, generated, at)

    def first_token(self, token_s: float) -> FirstToken | None:
        """The time of the first token; None while none was seen. `token_s` is the server's rate,
        in seconds for each token."""
        if self._first is None:
            return None
        at, decoded = self._first
        last_at, last_decoded = self.last_token
        is_own_pace = self.has_own_pace
        if is_own_pace:
            token_s = (last_at - at) / (last_decoded - decoded)
        back_s = (decoded - 0.5) * token_s
        return FirstToken(
            max(self.prefill_until, at - back_s), PACE_ERROR * back_s + token_s, is_own_pace
        )
