"""Bounds for the times of events on another machine, in seconds of our clock.

An agent's message has the newest number that the agent received from us (`echo`) and the time
since then (`held_s`). We sent that number at `p` and receive this message at `r`, so the agent
wrote it

    not before  p + held_s      it cannot have had our message before we sent it
    not after   r               it cannot have reached us before it was written

regardless of the agent's clock and of the delay of the network in either direction. A scrape that
began `began_ago_s` and was answered `answered_ago_s` before the writing gets these times:

    began_at     p + held_s - began_ago_s    never later than the real time
    answered_at  r - answered_ago_s          never earlier than the real time

The ledger tolerates errors in this direction (`core/slots/endpoint_slots.py`):
- A lease of ours that was open at any moment of the real scrape is open at some moment of the
  dated one, so it is subtracted from the busy slots. A new lease is never counted twice, and
  a freed slot never counts as busy.
- A scrape proves that a draining lease ended only if it really began after the client left.
The cost of the wider span: a foreign request that arrived while the message was on its way is
noticed one scrape later. The scrapes of one agent are in order, so none is dated before the
previous one, and a jump of the network's delay does not make a new one look outdated.

The rate of a machine's clock may be wrong by `DRIFT`. A clock that is worse is detected when the
agent claims to have had a message for longer than the message exists; from then on `held_s` is
not used.
"""

import math
from typing import Final

from extproc.admin.call_errors import invalid

DRIFT: Final = 0.001
MAX_AGE_S: Final = 3600.0
MAX_NUMBERS: Final = 1000


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

        Raises `CallError` when it echoes what was not sent, or goes back behind an echo.
        """
        _check_age(held_s, "held_s")
        sent_at = self._sent.get(echo)
        if sent_at is None:
            raise invalid("echo: this number was not sent on this stream, or too long ago")
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
        """`began_at` and `answered_at` of a scrape; raises `CallError` for impossible ages."""
        _check_age(began_ago_s, "began_ago_s")
        _check_age(answered_ago_s, "answered_ago_s")
        if answered_ago_s > began_ago_s:
            raise invalid("answered_ago_s: it must not be before began_ago_s")
        began_at = max(written_after - began_ago_s * (1 + DRIFT), self._began_at)
        self._began_at = began_at
        return began_at, max(began_at, now - answered_ago_s * (1 - DRIFT))


def _check_age(seconds: float, field: str) -> None:
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_AGE_S):
        raise invalid(f"{field}: 0 to {MAX_AGE_S:g} seconds")
