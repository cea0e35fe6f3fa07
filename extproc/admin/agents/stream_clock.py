"""When something happened on another machine, in seconds of our clock: bounds, never a guess.

An agent's message names the newest of our messages that it has (`echo`) and for how long it
has had it (`held_s`). We sent that one at `p` and get this one at `r`, so it was written

    not before  p + held_s      it cannot have had our message before we sent it
    not after   r               it cannot have reached us before it was written

whatever the agent's clock says, how slow the network is, and in which direction. A look that
began `began_ago_s` and was answered `answered_ago_s` before the writing is then dated

    began_at     p + held_s - began_ago_s    never later than it really was
    answered_at  r - answered_ago_s          never earlier than it really was

which is the way in which the ledger may be wrong (`core/slots/endpoint_slots.py`):
- A lease of ours that was open at any moment of the real look is open at some moment of the
  dated one. So it is subtracted from the busy slots: a fresh lease is never counted twice, and
  a freed slot does not look taken.
- A look is held against a lease whose client left only when it really began after that.
What the wider span costs: a stranger that came during the trip of a message is seen one look
later. Looks of one agent follow each other, so a look is never dated before the one before;
that makes a jump of the network's delay no reason to think it old news.

A machine's clock may run fast or slow by `DRIFT`, which is allowed for. One that is worse is
found out when it claims to have had a message for longer than it exists; from then on `held_s`
is not used.
"""

from __future__ import annotations

import math
from typing import Final

DRIFT: Final = 0.001
MAX_AGE_S: Final = 3600.0
MAX_NUMBERS: Final = 1000


class TimesError(ValueError):
    """Invalid times; `str(error)` says which."""


class StreamClock:
    """The times of one stream. Pure: `now` is our monotonic clock."""

    __slots__ = ("_began_at", "_echoed", "_sent", "is_wrong")

    def __init__(self) -> None:
        self._sent: dict[int, float] = {}
        self._echoed = 0
        self._began_at = -math.inf
        self.is_wrong = False
        """Whether the agent's clock was found to run fast."""

    def sent(self, number: int, now: float) -> None:
        """Our message with this number goes out now."""
        self._sent[number] = now
        if len(self._sent) > MAX_NUMBERS:
            del self._sent[next(iter(self._sent))]

    def written_after(self, echo: int, held_s: float, now: float) -> float:
        """The earliest moment at which a message that arrived now can have been written.

        Raises `TimesError` when it echoes what was not sent, or goes back behind an echo.
        """
        _check_age(held_s, "held_s")
        sent_at = self._sent.get(echo)
        if sent_at is None:
            raise TimesError("echo: this number was not sent on this stream, or too long ago")
        if echo > self._echoed:
            self._echoed = echo
            for number in [number for number in self._sent if number < echo]:
                del self._sent[number]
        earliest = sent_at + held_s * (1 - DRIFT)
        if earliest > now:
            self.is_wrong = True
        return sent_at if self.is_wrong else earliest

    def date(
        self, written_after: float, now: float, began_ago_s: float, answered_ago_s: float
    ) -> tuple[float, float]:
        """`began_at` and `answered_at` of a look; raises `TimesError` for impossible ages."""
        _check_age(began_ago_s, "began_ago_s")
        _check_age(answered_ago_s, "answered_ago_s")
        if answered_ago_s > began_ago_s:
            raise TimesError("answered_ago_s: it must not be before began_ago_s")
        began_at = max(written_after - began_ago_s * (1 + DRIFT), self._began_at)
        self._began_at = began_at
        return began_at, max(began_at, now - answered_ago_s * (1 - DRIFT))


def _check_age(seconds: float, field: str) -> None:
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_AGE_S):
        raise TimesError(f"{field}: 0 to {MAX_AGE_S:g} seconds")
