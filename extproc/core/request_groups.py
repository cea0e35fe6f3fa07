"""Counts the requests at once of sessions and of flows, for the limits of clients.

Sessions and flows are what clients say, without number, so a group is known only while a request
counts in it. A request that its client left counts until its server is known to be free, as in the
limits of clients.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple, Protocol

MANY_DRAINING: Final = 64
"""Above this number, and twice what was left last time, draining requests are looked through."""


class Draining(Protocol):
    """The slot of a request whose client left."""

    @property
    def is_draining(self) -> bool:
        """Whether its server may still work on the request."""


class GroupKind(Enum):
    """What the requests of a group have in common."""

    SESSION = "session"
    FLOW = "flow"


class Group(NamedTuple):
    """The requests of a tenant with one session id or one fairness id."""

    kind: GroupKind
    tenant: str
    name: str


Groups = tuple[Group, ...]
"""The groups that a request counts in; most count in none."""


class RequestGroups:
    """The requests of each group, by the ids of their exchanges: to remove one twice changes
    nothing. Every call is O(1), amortised, but for `count`."""

    def __init__(self) -> None:
        self._counts: dict[Group, int] = {}
        self._groups: dict[str, Groups] = {}
        """By exchange id."""
        self._draining: list[tuple[Draining, Groups]] = []
        self._many_draining = MANY_DRAINING

    def __len__(self) -> int:
        """The number of groups in which requests count."""
        return len(self._counts)

    def __iter__(self) -> Iterator[str]:
        """The exchange ids of those that count and have not ended."""
        return iter(self._groups)

    def count(self, group: Group, most: int) -> int:
        """How many requests count; exact if these are `most` or fewer. O(draining requests) if they
        seem to be as many."""
        found = self._counts.get(group, 0)
        if found < most or not self._draining:
            return found
        self._forget_drained()
        return self._counts.get(group, 0)

    def add(self, exchange_id: str, groups: Groups) -> None:
        """A request begins in these groups, if they are any: then `remove` must follow."""
        if groups:
            self._groups[exchange_id] = groups
            for group in groups:
                self._counts[group] = self._counts.get(group, 0) + 1

    def remove(self, exchange_id: str, draining: Draining | None = None) -> None:
        """It has ended; no error if it had not begun. With `draining` it counts as long as this
        drains."""
        groups = self._groups.pop(exchange_id, ())
        if not groups:
            return
        if draining is None:
            self._uncount(groups)
            return
        self._draining.append((draining, groups))
        if len(self._draining) > self._many_draining:
            self._forget_drained()

    def _forget_drained(self) -> None:
        left = []
        for one in self._draining:
            if one[0].is_draining:
                left.append(one)
            else:
                self._uncount(one[1])
        self._draining = left
        self._many_draining = max(MANY_DRAINING, 2 * len(left))

    def _uncount(self, groups: Iterable[Group]) -> None:
        for group in groups:
            if self._counts[group] > 1:
                self._counts[group] -= 1
            else:
                del self._counts[group]
