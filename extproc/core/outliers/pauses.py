"""How long a server that answers 429 gets no requests.

It says that itself, in `Retry-After`, and is believed within bounds. But each request that it gets
when a pause is over, and answers with 429 again, is one that a client has lost, and it has free
slots while others are full. So a server that has served nothing since its last pause gets one that
is twice as long, whatever it asks for.
"""

from typing import Final

from extproc.core.address import Address
from extproc.core.learner import Learner

PAUSE_S: Final = 5.0
"""Without `Retry-After`."""
SHORTEST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 300.0


class Pauses(Learner):
    """The lengths of the last pauses. O(1) a call."""

    def __init__(self) -> None:
        self._lengths_s: dict[Address, float] = {}
        """Those of servers that have served nothing since their last pause began."""

    def next_s(self, address: Address, retry_after_s: float | None, *, is_paused: bool) -> float:
        """The seconds of a pause that begins now: the server asked for `retry_after_s`. With
        `is_paused` it is one of several that met the same pause."""
        last_s = self._lengths_s.get(address, 0.0)
        pause_s = PAUSE_S if retry_after_s is None else max(retry_after_s, SHORTEST_PAUSE_S)
        if not is_paused:
            pause_s = max(pause_s, 2 * last_s)
        pause_s = min(pause_s, LONGEST_PAUSE_S)
        self._lengths_s[address] = max(pause_s, last_s)
        return pause_s

    def served(self, address: Address) -> None:
        """It answered a request with a success."""
        if self._lengths_s:
            self._lengths_s.pop(address, None)

    def forget(self, address: Address) -> None:
        """The endpoint left the fleet."""
        self._lengths_s.pop(address, None)

    def replaced(self, address: Address, _now: float) -> None:
        """Another process runs there."""
        self._lengths_s.pop(address, None)
