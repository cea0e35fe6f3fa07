"""Whether a core may decide: no front may use its replies and those of another core at once.

A core may decide while the lease of its machine runs. When the engine does not answer, it may also
decide while every front that could follow another core has pledged to follow this one: each
answers pings, and uses no other core's replies for `PLEDGE_S` after it got one. Times are
monotonic seconds of this machine; a pledge counts from when the ping was sent.
"""

from typing import Final

PLEDGE_S: Final = 1.0


class LeaseGrant:
    """Nothing is permitted until `renew`."""

    def __init__(self) -> None:
        self._until = 0.0
        self._followed_until = 0.0
        self._required: frozenset[str] = frozenset()
        self._pledged: dict[str, float] = {}

    def renew(self, until: float, followed_until: float, fronts: frozenset[str]) -> None:
        """The word of the machine's supervisor: decide until `until`, or until `followed_until` if
        `fronts`, which are those of other machines, follow."""
        self._until = until
        self._followed_until = followed_until
        self._required = fronts
        for name in self._pledged.keys() - fronts:
            del self._pledged[name]

    def pledged(self, front: str, ping_sent_at: float) -> None:
        """A front has answered a ping."""
        if front in self._required:
            until = ping_sent_at + PLEDGE_S
            self._pledged[front] = max(until, self._pledged.get(front, 0.0))

    def is_given(self, now: float) -> bool:
        """Whether decisions may be made and sent now."""
        if now < self._until:
            return True
        return now < self._followed_until and all(
            self._pledged.get(name, 0.0) > now for name in self._required
        )
