"""The delay before the next attempt to connect. Pure: randomness is an argument."""

from collections.abc import Callable

FIRST_S = 0.1
LONGEST_S = 2.0
"""Short, so that a restarted picker soon has its fleet again."""
REJECTED_S = 15.0
"""After a rejection, which repeats until an operator fixes its cause."""


class Backoff:
    """Doubles from `FIRST_S` to `LONGEST_S`, each spread over its upper half, so that many
    agents do not come back in step."""

    def __init__(self, random: Callable[[], float]) -> None:
        """`random` gives numbers in [0, 1)."""
        self._random = random
        self._failures = 0

    def reset(self) -> None:
        """Reset after a working connection."""
        self._failures = 0

    def next_s(self, *, is_rejected: bool) -> float:
        """Seconds until the next attempt."""
        base_s = min(LONGEST_S, FIRST_S * 2.0 ** min(self._failures, 9))
        if is_rejected:
            base_s = REJECTED_S
        self._failures += 1
        return base_s * (0.5 + 0.5 * self._random())
