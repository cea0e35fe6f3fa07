"""The last endpoint of each client session: a hint for requests whose prompt was not read."""

from collections import OrderedDict
from typing import NamedTuple

from extproc.core.address import Address
from extproc.core.learner import Learner

MAX_SESSIONS = 20_000
UNKNOWN_TOKENS = 500.0
"""The tokens that are assumed cached for a session whose prompts are not read."""


class Seen(NamedTuple):
    address: Address
    tokens: float


class Sessions(Learner):
    """The most recently used sessions. Every call is O(1), except `forget`."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._at: dict[Address, dict[str, None]] = {}

    def served(self, session: str, address: Address, tokens: int | None) -> None:
        """A request of the session was processed there."""
        before = self._seen.get(session)
        if before is None or before.address != address:
            if before is not None:
                self._leave(session, before.address)
            self._at.setdefault(address, {})[session] = None
        self._seen[session] = Seen(address, UNKNOWN_TOKENS if tokens is None else float(tokens))
        self._seen.move_to_end(session)
        if len(self._seen) > MAX_SESSIONS:
            oldest, seen = self._seen.popitem(last=False)
            self._leave(oldest, seen.address)

    def at(self, address: Address) -> list[tuple[str, float]]:
        """The sessions of an endpoint with their tokens. O(its sessions)."""
        seen = self._seen
        return [(session, seen[session].tokens) for session in self._at.get(address, ())]

    def forget(self, address: Address) -> None:
        """Its server was restarted or is gone, and its cache with it. O(its sessions)."""
        for session in self._at.pop(address, ()):
            del self._seen[session]

    def replaced(self, address: Address, _now: float) -> None:
        self.forget(address)

    def last_endpoint(self, session: str | None) -> Address | None:
        """The endpoint that served the session last."""
        seen = self._seen.get(session) if session is not None else None
        return None if seen is None else seen.address

    def tokens_at(self, session: str | None, address: Address) -> float:
        """How many tokens of the session that endpoint may still have in its cache."""
        seen = self._seen.get(session) if session is not None else None
        return seen.tokens if seen is not None and seen.address == address else 0.0

    def _leave(self, session: str, address: Address) -> None:
        sessions = self._at[address]
        sessions.pop(session, None)
        if not sessions:
            del self._at[address]
